"""The training half of an ArcticRL client: passes, steps, checkpoints, sleep."""

from __future__ import annotations

import time
from collections.abc import Mapping
from numbers import Real
from types import NoneType
from typing import Any

from gradwire.client._convert.nearest import unknown_name
from gradwire.client._core.arguments import check
from gradwire.client.arctic.base import ArcticRLBase
from gradwire.client.arctic.batch import decode_batch
from gradwire.client.arctic.processing import decode_processing, loss_call
from gradwire.client.arctic.results import (
    Result,
    checkpoint_result,
    fwd_bwd_result,
    fwd_no_grad_result,
    load_result,
    memory_result,
    step_result,
    workers_result,
)
from gradwire.client.arctic.warning import warn
from gradwire.client.types.jobs import JobKind

_OFFLOADED = {"all": "offloaded", "non_lp": "offloaded_non_lp", "lp_params": "offloaded_lp"}


class ArcticRLTraining(ArcticRLBase):
    """Methods of the training job. Each is a ValueError when there is none.

    Under one `request_id` a call is applied once, however often it is made: an error that leaves it open whether the
    server carried it out has the id to repeat it with. Left out, it is a fresh one.
    """

    async def fwd_bwd(
        self,
        batch: Mapping[str, Any],
        processing: Mapping[str, Any] | None = None,
        *,
        request_id: str | None = None,
    ) -> Result:
        """Runs a batch forward and backward, and adds its gradients to those accumulated.

        `batch` is {"args": [input_ids], "kwargs": {"attention_mask": ...}, "context": {...}}, tensors [B, S] of
        torch or numpy on the shifted grid (labels = roll(input_ids, -1)), padded left or right. `context` may
        hold `advantages`, `loss_mask`, `old_log_probs_shifted`, `prox_logp_shifted`, `ref_log_probs_shifted`
        and further columns of a TrainingBatch; missing advantages are 1, a missing mask counts all real tokens
        but each row's last, and both say so in `warnings`. The payload form {"batch", "meta"} works too.

        `processing` is {"loss_fn": name, "config": {...}, "post": [steps]}; None takes the job's own loss.

        Returns {job_id, metrics, avg_loss, weight_version, warnings}: scalars at any number of workers. With
        compute_* steps also `batch`: {"logprobs", "entropy"}, float32 [B, S] of the caller's kind of tensor,
        0 where the loss does not count. ValueError names an unknown key, step, loss or option.
        """
        job = self.training_job_id
        decoded = decode_batch(batch)
        call = decode_processing(processing, decoded, self._temperature)
        loss, loss_config = loss_call(call, decoded)
        found = await self._run(
            self._client.training.fwd_bwd(
                job,
                decoded.columns,
                loss=loss,
                loss_config=loss_config,
                return_outputs=call.log_probs or call.entropy,
                request_id=request_id,
            )
        )
        result = fwd_bwd_result(job, found, call, decoded)
        for text in result["warnings"]:
            warn(text)
        return result

    async def fwd_no_grad(
        self,
        batch: Mapping[str, Any],
        reference_model: bool = False,
        processing: Mapping[str, Any] | None = None,
    ) -> Result:
        """Runs a batch forward, on the log-prob job if `reference_model`, else on the training job.

        `batch` as in `fwd_bwd`. Returns {job_id, batch: {"logprobs"[, "entropy"]}, metrics, avg_loss: None,
        weight_version, warnings}; entropy where a post step, or meta.calculate_entropy, asks for it.
        """
        job = self._job(JobKind.LOG_PROB if reference_model else JobKind.TRAINING)
        decoded = decode_batch(batch)
        call = decode_processing(processing, decoded, self._temperature)
        if call.loss is not None:
            raise ValueError(f"processing.loss_fn is {call.loss!r}, but a forward pass has no loss; leave it out")
        temperature = call.temperature or call.loss_config.pop("temperature", None)
        call.loss_config.pop("temperature", None)
        if call.loss_config:
            raise ValueError(unknown_name("processing.config key", next(iter(call.loss_config)), ("temperature",)))
        call.log_probs = True
        rows: dict[str, Any] = {
            key: decoded.columns[key] for key in ("input_ids", "attention_mask") if key in decoded.columns
        }
        found = await self._run(
            self._client.training.fwd_no_grad(job, rows, temperature=temperature, entropy=call.entropy)
        )
        result = fwd_no_grad_result(job, found, call, decoded)
        for text in result["warnings"]:
            warn(text)
        return result

    async def step(
        self, lr: float | None = None, *, max_grad_norm: float | None = None, request_id: str | None = None
    ) -> Result:
        """Clips and applies the accumulated gradients, and clears them.

        `lr` and `max_grad_norm` (0 does not clip) are of this step alone. Returns {job_id, metrics: {last_lr,
        grad_norm, step, ...}, batch: {}, weight_version}.
        """
        job = self.training_job_id
        check(lr, "lr", (Real, NoneType), "a number")
        found = await self._run(
            self._client.training.step(job, learning_rate=lr, max_grad_norm=max_grad_norm, request_id=request_id)
        )
        return step_result(job, found)

    async def zero_grad(self, *, request_id: str | None = None) -> Result:
        """Drops the accumulated gradients, so that the next `fwd_bwd` begins a step anew.

        Returns {job_id, num_dropped}: of how many `fwd_bwd` calls, 0 when there were none.
        """
        job = self.training_job_id
        found = await self._run(self._client.training.zero_grad(job, request_id=request_id))
        return {"job_id": job, "num_dropped": found.num_dropped}

    async def save_checkpoint(self, name: str = "", *, request_id: str | None = None) -> Result:
        """Writes a checkpoint under `name`, or one of the server's choosing.

        Returns {job_id, path, hf_path, global_step, name, weight_version, size_bytes}; the paths are folders on
        the server, and `hf_path` is one that transformers and vLLM load.
        """
        job = self.training_job_id
        found = await self._run(self._client.training.save_checkpoint(job, name, request_id=request_id))
        return checkpoint_result(job, found)

    async def load_checkpoint(self, checkpoint: str | Mapping[str, Any], *, request_id: str | None = None) -> Result:
        """Goes on from a checkpoint: its name, its path, or what `save_checkpoint` returned.

        Returns {job_id, global_step, name, path, weight_version}. NotFoundError when there is no such checkpoint.
        """
        job = self.training_job_id
        check(checkpoint, "checkpoint", (str, Mapping), "a name, a path, or what save_checkpoint returned")
        name = checkpoint if isinstance(checkpoint, str) else str(checkpoint.get("name", ""))
        if "/" in name:
            known = {found.path: found.name for found in await self._run(self._client.training.list_checkpoints())}
            if name.rstrip("/") not in known:
                raise ValueError(f"no checkpoint has the path {name!r}; give its name")
            name = known[name.rstrip("/")]
        found = await self._run(self._client.training.load_checkpoint(job, name, request_id=request_id))
        return load_result(job, found)

    async def sleep_training(self, mode: str = "all") -> Result:
        """Gives the trainer's memory back: "all", "non_lp" (all but the low-precision weights), "lp_params" (those).

        Returns {job_id, workers: [{status, elapsed, gpu_mb, before_bytes, after_bytes, freed_bytes}]}: one entry
        for all workers. `status` is "offloaded", "offloaded_non_lp", "offloaded_lp" or "already_offloaded".
        """
        job = self.training_job_id
        if not isinstance(mode, str) or mode not in _OFFLOADED:
            raise ValueError(unknown_name("mode", mode, _OFFLOADED))
        began = time.monotonic()
        found = await self._run(self._client.training.sleep(job, mode))
        status = _OFFLOADED[mode] if found.changed else "already_offloaded"
        return workers_result(job, memory_result(status, found, time.monotonic() - began))

    async def wake_training(self) -> Result:
        """Undoes `sleep_training`. As there; `status` is "on_gpu" or "already_on_gpu", on a CPU too."""
        job = self.training_job_id
        began = time.monotonic()
        found = await self._run(self._client.training.wake(job))
        status = "on_gpu" if found.changed else "already_on_gpu"
        return workers_result(job, memory_result(status, found, time.monotonic() - began))

    async def empty_training_cache(self) -> Result:
        """Gives back memory that the trainer's allocator holds without using it. Returns as `sleep_training`."""
        job = self.training_job_id
        began = time.monotonic()
        found = await self._run(self._client.training.empty_cache(job))
        return workers_result(job, memory_result("emptied", found, time.monotonic() - began))
