"""vLLM's settings as fields of a SamplingJobConfig."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradwire.client.arctic.settings import Chosen, Settings

# vLLM's name -> ours and the type. Ours are taken as well.
_KEYS: Mapping[str, tuple[str, type]] = {
    "max_model_len": ("max_model_len", int),
    "max_num_seqs": ("max_num_seqs", int),
    "max_num_batched_tokens": ("max_num_batched_tokens", int),
    "kv_cache_memory_bytes": ("kv_cache_bytes", int),
    "kv_cache_bytes": ("kv_cache_bytes", int),
    "gpu_memory_utilization": ("gpu_memory_utilization", float),
    "tensor_parallel_size": ("tensor_parallel_size", int),
    "data_parallel_size": ("data_parallel_size", int),
    "max_logprobs": ("max_log_probs", int),
    "max_log_probs": ("max_log_probs", int),
    "enable_prefix_caching": ("enable_prefix_caching", bool),
    "enforce_eager": ("enforce_eager", bool),
    "seed": ("seed", int),
    "max_loras": ("max_loras", int),
    "max_lora_rank": ("max_lora_rank", int),
}
_DTYPES = {"half": "float16", "fp16": "float16", "bf16": "bfloat16", "float": "float32", "fp32": "float32"}


def sampler_settings(vllm_config: Mapping[str, Any] | None, notes: list[str]) -> dict[str, Any]:
    """Fields of a SamplingJobConfig; absent ones take the server's defaults."""
    settings = Settings(vllm_config, "vllm_config", notes)
    job = Chosen()
    dtype = settings.take("dtype", str, ("float32", "bfloat16", "float16", *_DTYPES))
    job.put("dtype", _DTYPES.get(dtype, dtype), "vllm_config.dtype")
    for key, (name, kind) in _KEYS.items():
        value = settings.take(key, kind)
        least = 0 if name in ("max_log_probs", "seed", "max_loras") else 1
        if value is not None and kind is int and value < least:
            raise ValueError(f"vllm_config.{key} is {value}; it is at least {least}")
        job.put(name, value, f"vllm_config.{key}")
    settings.refuse("models bring no code of their own", "trust_remote_code", unless=(False,))
    settings.refuse("weights are sampled as they are trained", "quantization", "kv_cache_dtype", unless=("none",))
    settings.refuse("samplers draft no tokens", "speculative_config", unless=({},))
    enabled = settings.take("enable_lora", bool)
    if enabled:
        job.setdefault("max_loras", 1)  # vLLM's own default
    elif enabled is False and job.setdefault("max_loras", 0):
        raise ValueError(f"vllm_config.enable_lora is False, and max_loras is {job['max_loras']}; say one of them")
    settings.refuse("only tensor and data parallelism are offered", "pipeline_parallel_size", unless=(1,))
    settings.refuse("log-probs are the model's own", "logprobs_mode", unless=("raw_logprobs",))
    settings.refuse("a model comes with its tokenizer", "tokenizer", "skip_tokenizer_init", unless=(False,))
    settings.ignore(
        "the server decides it",
        "block_size", "swap_space", "disable_log_stats", "disable_log_requests", "load_format", "download_dir",
        "enable_chunked_prefill", "distributed_executor_backend", "compilation_config", "disable_custom_all_reduce",
        "tokenizer_mode", "generation_config",
        "cpu_offload_gb", "async_scheduling", "max_seq_len_to_capture", "enable_sleep_mode", unless=(True, 0),
    )  # fmt: skip
    settings.end()
    return dict(job)
