"""From an ArcticRLClientConfig to the configurations of gradwire's jobs.

Knows: which job is made, and what belongs to it. Does not know: DeepSpeed's or vLLM's own keys (`trainer_settings`
and `sampler_settings` do).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradwire.client._convert.nearest import unknown_name
from gradwire.client.arctic.config import ArcticRLClientConfig
from gradwire.client.arctic.sampler_settings import sampler_settings
from gradwire.client.arctic.settings import Chosen, Settings
from gradwire.client.arctic.trainer_settings import read_worker_settings, trainer_settings

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What to create. Each configuration is a dict of fields of gradwire's; None makes no such job."""

    training: dict[str, Any] | None
    sampling: dict[str, Any] | None
    log_prob: dict[str, Any] | None
    notes: tuple[str, ...]
    """Settings that are without effect, in words."""


def plan_jobs(config: ArcticRLClientConfig) -> JobPlan:
    """The jobs of a configuration. ValueError names a setting that is unknown or cannot be done."""
    notes: list[str] = []
    # Settings of a job that is not made are read as well: a typo is one all the same.
    training = trainer_settings(config.ds_config, config.training_config, config.ds_worker_config, notes)
    training.update(model=config.model_name, num_workers=config.training_gpus, seed=config.seed)
    sampling = _sampling(config, notes)
    if "lora" in training and config.training_gpus:
        # Where the policy is an adapter, its sampler has a slot for it; settings of its own win.
        rank = training["lora"].get("rank")
        sampling = {"max_loras": 1, **({} if rank is None else {"max_lora_rank": rank}), **sampling}
    log_prob = _log_prob(config, training, sampling, notes)
    _note_flags(config, notes)
    return JobPlan(
        training if config.training_gpus else None,
        sampling if config.sampling_gpus else None,
        log_prob if config.log_prob_gpus else None,
        tuple(notes),
    )


def default_temperature(config: ArcticRLClientConfig) -> float | None:
    """Temperature that ds_worker_config gives to calls that name none."""
    return read_worker_settings(config.ds_worker_config, Chosen(), []).temperature


def _sampling(config: ArcticRLClientConfig, notes: list[str]) -> Fields:
    chosen = sampler_settings(config.vllm_config, notes)
    replicas = _replicas("sampling_gpus", config.sampling_gpus, chosen)
    if chosen.get("data_parallel_size", replicas) != replicas:
        raise ValueError(
            f"vllm_config.data_parallel_size is {chosen['data_parallel_size']}, but sampling_gpus makes it {replicas}"
        )
    return {"seed": config.seed, **chosen, "model": config.model_name, "data_parallel_size": max(replicas, 1)}


def _replicas(name: str, gpus: int, settings: Fields) -> int:
    spread: int = settings.get("tensor_parallel_size", 1)
    if gpus % spread:
        raise ValueError(f"{name} is {gpus}; vllm_config.tensor_parallel_size ({spread}) does not divide it")
    return gpus // spread


def _log_prob(config: ArcticRLClientConfig, training: Fields, sampling: Fields, notes: list[str]) -> Fields:
    job: Fields = {"model": config.model_name, "engine": config.log_prob_engine}
    if config.log_prob_engine == "deepspeed":
        dtype = _log_prob_dtype(Settings(config.log_prob_ds_config, "log_prob_ds_config", notes))
        given = {name: training[name] for name in _SCORED_LIKE_TRAINING if name in training}
        return {**job, **given, **({} if dtype is None else {"dtype": dtype}), "num_workers": config.log_prob_gpus}
    if config.log_prob_ds_config:
        raise ValueError('log_prob_ds_config goes with log_prob_engine="deepspeed"; the engine is "vllm"')
    given = {name: sampling[name] for name in _SCORED_LIKE_SAMPLING if name in sampling}
    return {**job, **given, "num_workers": max(_replicas("log_prob_gpus", config.log_prob_gpus, sampling), 1)}


# What ds_worker_config and vllm_config say of every job on their engine.
_SCORED_LIKE_TRAINING = ("max_tokens_per_micro_batch", "threads")
_SCORED_LIKE_SAMPLING = (
    "dtype", "max_model_len", "max_log_probs", "kv_cache_bytes", "gpu_memory_utilization", "tensor_parallel_size",
)  # fmt: skip


def _log_prob_dtype(settings: Settings) -> str | None:
    bf16 = settings.section("bf16")
    enabled = bf16.take("enabled", bool)
    bf16.end()
    settings.refuse('a log-prob job computes in "float32" or "bfloat16"', "fp16", unless=({"enabled": False},))
    settings.ignore(
        "a log-prob job has no optimizer and its rows are split by tokens",
        "zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size", "gradient_accumulation_steps",
        "gradient_clipping", "steps_per_print", "wall_clock_breakdown", "optimizer", "scheduler",
    )  # fmt: skip
    settings.end()
    return None if enabled is None else "bfloat16" if enabled else "float32"


def _note_flags(config: ArcticRLClientConfig, notes: list[str]) -> None:
    if config.full_determinism:
        notes.append("full_determinism has no effect: results on a CPU repeat anyway; no GPU kernels are chosen for it")
    if config.checkpoint_path is not None and not config.starts_server:
        notes.append("checkpoint_path has no effect: a running server keeps checkpoints in its own --data-dir")
    for name, options in (config.arctic_inference_config or {}).items():
        if name not in _INFERENCE:
            raise ValueError(unknown_name("arctic_inference_config key", name, _INFERENCE))
        if options and any(options.values() if isinstance(options, dict) else [options]):
            raise ValueError(f"arctic_inference_config.{name} cannot be done here: {_INFERENCE[name]}")


_INFERENCE = {
    "zorro_inference": "vLLM's own prefix cache shares what prompts have in common",
    "speculative_decoding": "samplers draft no tokens",
}
