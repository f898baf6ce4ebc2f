"""Results as the ArcticRL document shapes them: dicts, with scalars at any number of workers.

Knows: the peer's keys, and what gradwire adds beside them. Does not know: calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradwire.client.arctic.batch import DecodedBatch
from gradwire.client.arctic.processing import Processing
from gradwire.client.types.sampling import (
    Completion,
    Float32Array,
    GenerateResult,
    Int32Array,
    MemoryChange,
    PromptInfo,
    PromptResult,
    Score,
    StreamDelta,
    TopLogProbs,
    WeightSpan,
)
from gradwire.client.types.training import Checkpoint, FwdBwdResult, FwdNoGradResult, LoadResult, StepResult
from gradwire.client.types.weights import SyncResult, WeightChecksums, WeightNorm

Result = dict[str, Any]
_MIB = 1024 * 1024
# The peer's name -> the server's.
_METRIC_NAMES = {"clip_ratio": "clip_fraction", "importance_weight": "ratio_mean"}


def fwd_bwd_result(job_id: int, found: FwdBwdResult, call: Processing, batch: DecodedBatch) -> Result:
    """{job_id, metrics, avg_loss, weight_version, warnings}, and `batch` where outputs were asked for."""
    metrics = {
        "loss": found.loss,
        "num_loss_tokens": float(found.num_loss_tokens),
        "num_tokens": float(found.num_tokens),
        "num_micro_batches": float(found.num_micro_batches),
        "queued_s": found.queued_s,
        "run_s": found.run_s,
        "tokens_per_second": found.num_tokens / found.run_s if found.run_s else 0.0,
        **found.metrics,
    }
    metrics |= {peers: metrics[ours] for peers, ours in _METRIC_NAMES.items() if ours in metrics}
    result: Result = {
        "job_id": job_id,
        "metrics": metrics,
        "avg_loss": found.loss,
        "weight_version": found.weight_version,
        "warnings": [*batch.warnings, *found.warnings],
    }
    outputs = _outputs(found.log_probs_shifted, found.entropy, call, batch)
    if outputs:
        result["batch"] = outputs
    return result


def fwd_no_grad_result(job_id: int, found: FwdNoGradResult, call: Processing, batch: DecodedBatch) -> Result:
    """{job_id, batch{logprobs[, entropy]}, metrics, avg_loss: None, ...}: a forward pass has no loss."""
    return {
        "job_id": job_id,
        "batch": _outputs(found.log_probs_shifted, found.entropy, call, batch),
        "metrics": {"queued_s": found.queued_s, "run_s": found.run_s},
        "avg_loss": None,
        "weight_version": found.weight_version,
        "warnings": list(batch.warnings),
    }


def _outputs(log_probs: Any, entropy: Any, call: Processing, batch: DecodedBatch) -> Result:
    outputs: Result = {}
    if call.log_probs and log_probs is not None:
        outputs["logprobs"] = batch.like_input(log_probs)
    if call.entropy and entropy is not None:
        outputs["entropy"] = batch.like_input(entropy)
    return outputs


def step_result(job_id: int, found: StepResult) -> Result:
    """{job_id, metrics{last_lr, grad_norm, ...}, batch: {}, weight_version}."""
    metrics = {
        "last_lr": found.learning_rate,
        "grad_norm": found.grad_norm,
        "step": found.step,
        "queued_s": found.queued_s,
        "run_s": found.run_s,
    }
    return {"job_id": job_id, "metrics": metrics, "batch": {}, "weight_version": found.weight_version}


def checkpoint_result(job_id: int, found: Checkpoint) -> Result:
    """{job_id, path, hf_path, global_step, name, weight_version, size_bytes}."""
    return {
        "job_id": job_id,
        "path": found.path,
        "hf_path": found.export_path,
        "global_step": found.step,
        "name": found.name,
        "weight_version": found.weight_version,
        "size_bytes": found.size_bytes,
    }


def load_result(job_id: int, found: LoadResult) -> Result:
    """{job_id, global_step, name, path, weight_version}."""
    checkpoint = found.checkpoint
    return {
        "job_id": job_id,
        "global_step": found.step,
        "name": checkpoint.name,
        "path": checkpoint.path,
        "weight_version": found.weight_version,
    }


def generate_results(found: GenerateResult) -> list[Result]:
    """One dict a prompt: that of its first completion, with all n under `completions`."""
    return [_prompt_result(result) for result in found]


def _prompt_result(result: PromptResult) -> Result:
    shared: Result = {
        "prompt_len": len(result.prompt.token_ids),
        "prefix_cache_len": result.prompt.num_cached_tokens,
        "prompt_token_ids": result.prompt.token_ids.tolist(),
    }
    if result.prompt.log_probs is not None:
        shared["prompt_logprobs"] = _prompt_log_probs(result.prompt)
    completions = [completion_result(completion) for completion in result.completions]
    return {**completions[0], **shared, "completions": completions}


def completion_result(found: Completion) -> Result:
    """One completion. `logprobs` is one {token_id: {logprob, rank}} a token, where asked for."""
    result: Result = {
        "index": found.index,
        "text": found.text,
        "token_ids": found.token_ids.tolist(),
        "finish_reason": found.finish_reason.value,
        "stop_reason": found.stop_reason,
        "generation_len": len(found.token_ids),
        "weight_version": found.weight_version,
        "weight_spans": _spans(found.weight_spans),
    }
    if found.log_probs is not None:
        result["logprobs"] = token_dicts(found.token_ids, found.log_probs, found.top_log_probs)
    return result


def delta_result(found: StreamDelta) -> Result:
    """New tokens of one completion: {index, first_token_index, text, token_ids[, logprobs], weight_spans}."""
    result: Result = {
        "index": found.index,
        "first_token_index": found.first_token_index,
        "text": found.text,
        "token_ids": found.token_ids.tolist(),
        "weight_spans": _spans(found.weight_spans),
    }
    if found.log_probs is not None:
        result["logprobs"] = token_dicts(found.token_ids, found.log_probs, found.top_log_probs)
    return result


def score_result(found: Score) -> Result:
    """One prompt and its completion, scored: as dicts a token, and as float32 arrays."""
    ids, values = found.completion_token_ids, found.completion_log_probs
    return {
        "prompt_token_ids": found.prompt.token_ids.tolist(),
        "token_ids": ids.tolist(),
        "prompt_len": len(found.prompt.token_ids),
        "generation_len": len(ids),
        "prompt_logprobs": _prompt_log_probs(found.prompt),
        "logprobs": token_dicts(ids, values, found.completion_top_log_probs),
        "prompt_log_probs": found.prompt.log_probs,
        "log_probs": values,
        "weight_version": found.weight_version,
    }


def token_dicts(ids: Int32Array, values: Float32Array, top: TopLogProbs | None) -> list[dict[int, Result]]:
    """{token_id: {logprob, rank}} a token, as vLLM writes them; rank is None beyond the alternatives."""
    found: list[dict[int, Result]] = []
    for position, (token, value) in enumerate(zip(ids.tolist(), values.tolist(), strict=True)):
        entry: dict[int, Result] = {token: {"logprob": value, "rank": None}}
        if top is not None:
            places = zip(top.token_ids[position].tolist(), top.log_probs[position].tolist(), strict=True)
            for rank, (other, other_value) in enumerate(places, start=1):
                if other >= 0:
                    entry[other] = {"logprob": other_value, "rank": rank}
        found.append(entry)
    return found


def _prompt_log_probs(prompt: PromptInfo) -> list[dict[int, Result] | None] | None:
    # Nothing comes before the first token, so it has none.
    if prompt.log_probs is None:
        return None
    return [None, *token_dicts(prompt.token_ids, prompt.log_probs, prompt.top_log_probs)[1:]]


def _spans(spans: Sequence[WeightSpan]) -> list[Result]:
    return [{"version": span.version, "start": span.start, "end": span.end} for span in spans]


def sync_result(job_id: int, found: SyncResult) -> Result:
    """{job_id, status: "ok", weight_version, size_bytes, num_tensors, transport, export_s, pause_s, total_s}."""
    return {
        "job_id": job_id,
        "status": "ok",
        "weight_version": found.weight_version,
        "size_bytes": found.size_bytes,
        "num_tensors": found.num_tensors,
        "transport": found.transport.value,
        "export_s": found.export_s,
        "pause_s": found.pause_s,
        "total_s": found.total_s,
    }


def norm_result(training: WeightNorm, sampling: WeightNorm, ours: WeightChecksums, theirs: WeightChecksums) -> Result:
    """Both norms and counts, and the names of the tensors that differ: a norm alone cannot see a permutation."""
    names = ours.checksums.keys() | theirs.checksums.keys()
    return {
        "training_norm": training.norm,
        "sampling_norm": sampling.norm,
        "training_num_params": _count(ours),
        "sampling_num_params": _count(theirs),
        "training_weight_version": training.weight_version,
        "sampling_weight_version": sampling.weight_version,
        "different_tensors": sorted(name for name in names if ours.checksums.get(name) != theirs.checksums.get(name)),
    }


def _count(found: WeightChecksums) -> int:
    return sum(int(np.prod(checksum.shape, dtype=np.int64)) for checksum in found.checksums.values())


def memory_result(status: str, found: MemoryChange, elapsed: float) -> Result:
    """{status, elapsed, gpu_mb, ...}: memory of all of a job's processes together, in MiB and bytes."""
    return {
        "status": status,
        "elapsed": elapsed,
        # The peer's name. On a CPU it is the processes' resident memory.
        "gpu_mb": found.after_bytes / _MIB,
        "before_bytes": found.before_bytes,
        "after_bytes": found.after_bytes,
        "freed_bytes": found.freed_bytes,
    }


def workers_result(job_id: int, entry: Mapping[str, Any]) -> Result:
    """{job_id, workers: [entry]}: one entry for all workers of the job."""
    return {"job_id": job_id, "workers": [dict(entry)]}


def inference_result(job_id: int, entry: Mapping[str, Any], **more: Any) -> Result:
    """{job_id, sampling: {status, ..., workers: [...]}}: one entry for all processes of the engine."""
    memory = {key: value for key, value in entry.items() if key != "status"}
    return {"job_id": job_id, "sampling": {"status": entry["status"], **more, "workers": [memory]}}
