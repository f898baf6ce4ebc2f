"""From a SamplerConfig to vLLM's arguments and the environment of its processes.

Knows what vLLM needs on a CPU to start fast and decode fast (each line says why). Does not start
anything.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradwire.server.engines.cores import usable_cores
from gradwire.server.engines.manifest import folder_shapes
from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.engines.vllm.plugin import BACKEND, FRONT_PID
from gradwire.server.errors import InvalidArgument

if TYPE_CHECKING:
    from vllm.engine.arg_utils import AsyncEngineArgs

EXTENSION = "gradwire.server.engines.vllm.worker.extension.WorkerExtension"
DEFAULT_CPU_KV_BYTES = 1 << 30
DTYPES = ("float32", "bfloat16", "float16")
VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # those that it has slots for
NOT_ADAPTED = {"embed_tokens", "lm_head", "wte", "wpe", "embed_in", "embed_out"}
FEW_CORES = 3  # at or below: one engine process with one compute thread


def on_cpu() -> bool:
    """Whether vLLM of this installation computes on the CPU."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def engine_args(config: SamplerConfig, *, cpu: bool) -> AsyncEngineArgs:
    """vLLM's arguments. Raises InvalidArgument for what cannot run here."""
    from vllm.config import StructuredOutputsConfig, WeightTransferConfig
    from vllm.engine.arg_utils import AsyncEngineArgs

    arguments: dict[str, Any] = {
        "model": config.model_path or config.model,
        "served_model_name": config.model,
        "dtype": _dtype(config),
        "load_format": "safetensors",  # never a pickle
        "tensor_parallel_size": config.tensor_parallel_size,
        "data_parallel_size": config.data_parallel_size,
        "max_logprobs": config.max_log_probs,
        "enable_prefix_caching": config.enable_prefix_caching,
        "seed": config.seed,
        "scheduling_policy": "priority",
        "disable_log_stats": True,  # a fifth of the front's time for each token; see observability/samplers.py
        "use_tqdm_on_load": False,
        "worker_extension_cls": EXTENSION,
        "weight_transfer_config": WeightTransferConfig(backend=BACKEND),
        # Of one make from the first request on. vLLM's own choice checks each grammar by whichever library takes it,
        # and then makes all of them with the library of the first.
        "structured_outputs_config": StructuredOutputsConfig(backend="xgrammar"),
    }
    # -1: the model's own context, or what the key-value cache has room for
    arguments["max_model_len"] = config.max_model_len or -1
    for name in ("max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization"):
        if value := getattr(config, name):
            arguments[name] = value
    if config.max_loras:
        arguments.update(_lora_arguments(config))
    arguments.update(_cpu_arguments(config) if cpu else _cuda_arguments(config))
    return AsyncEngineArgs(**arguments)


def _lora_arguments(config: SamplerConfig) -> dict[str, Any]:
    """Slots for adapters on all linear layers but the head, as a training job makes them."""
    shapes = folder_shapes(Path(config.model_path or config.model))
    weights = [name.removesuffix(".weight") for name, shape in shapes.items() if len(shape) == 2]
    linear = {name.rpartition(".")[2] for name in weights} - NOT_ADAPTED
    return {
        "enable_lora": True,
        "max_loras": config.max_loras,
        "max_lora_rank": next(rank for rank in VLLM_RANKS if rank >= config.max_lora_rank),
        "lora_target_modules": sorted(linear),
    }


def _dtype(config: SamplerConfig) -> str:
    """The model's own dtype for "auto": vLLM would make bfloat16 of float32."""
    if config.dtype != "auto":
        return config.dtype
    model = json.loads(Path(config.model_path or config.model, "config.json").read_text(encoding="utf-8"))
    own = model.get("dtype") or model.get("torch_dtype")
    return own if own in DTYPES else "auto"


def _cpu_arguments(config: SamplerConfig) -> dict[str, Any]:
    if config.enforce_eager is False:
        raise InvalidArgument.at(
            "config.enforce_eager",
            "compiled graphs hold on to packed weights on the CPU and would crash at the first weight"
            " update; leave it unset",
        )
    check_kv_cache_fits(config.kv_cache_bytes or DEFAULT_CPU_KV_BYTES, machine_memory())
    return {
        "enforce_eager": True,
        # Only whole blocks of a prompt are shared: with vLLM's 128 on a CPU, the samples of one short prompt
        # would each compute it again. 32 is the least that its fast kernels take.
        "block_size": 32,
        "kv_cache_memory_bytes": config.kv_cache_bytes or DEFAULT_CPU_KV_BYTES,
    }


def check_kv_cache_fits(wanted: int, machine: int) -> None:
    """Raises InvalidArgument for a KV cache that the machine could not hold if it held nothing else.

    vLLM would find out by itself, after it has loaded the model.
    """
    if wanted > machine:
        raise InvalidArgument.at(
            "config.kv_cache_bytes",
            f"is {wanted}, but this machine has {machine} bytes of memory in all, for the model, too",
            reason="NOT_ENOUGH_MEMORY",
        )


def machine_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or the limit of its container."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        if file.is_file() and (text := file.read_text().strip()).isdigit():
            limits.append(int(text))
    return min(limits)


def _cuda_arguments(config: SamplerConfig) -> dict[str, Any]:
    arguments: dict[str, Any] = {"enable_sleep_mode": True, "enforce_eager": bool(config.enforce_eager)}
    if config.kv_cache_bytes:
        arguments["kv_cache_memory_bytes"] = config.kv_cache_bytes
    return arguments


def engine_environment(config: SamplerConfig, *, cpu: bool) -> dict[str, str | None]:
    """Variables of the engine's processes; None removes one."""
    level = os.environ.get("VLLM_LOGGING_LEVEL", "WARNING")
    variables: dict[str, str | None] = {
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",  # the model is a folder; nothing is ever fetched
        "VLLM_LOGGING_LEVEL": level,
        FRONT_PID: str(os.getpid()),
    }
    if not cpu:
        return variables
    variables["VLLM_CPU_KVCACHE_SPACE"] = None  # it would override kv_cache_memory_bytes, in whole GiB
    variables["TORCHDYNAMO_DISABLE"] = "1"  # else the first log-probs compile for seconds
    alone = config.tensor_parallel_size == 1 and config.data_parallel_size == 1
    if alone and level == "ERROR":
        # vLLM's C++ warns through torch of the memory nodes that it chose. Of several processes gloo warns in earnest.
        variables["TORCH_CPP_LOG_LEVEL"] = os.environ.get("TORCH_CPP_LOG_LEVEL", level)
    cores = usable_cores()
    if cores <= FEW_CORES and alone:
        # The worker lives in the engine's process: 4 s less to start and 0.6 GB less. It does not
        # bind threads then, and unbound threads that share cores with the front are 2.5x slower.
        variables["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        variables["OMP_NUM_THREADS"] = "1"
    return variables


@contextmanager
def environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables for the processes started inside, and take back every change afterwards.

    vLLM itself writes to os.environ (LD_PRELOAD among others) while it starts: processes that
    others start later must not inherit that. It also seeds this process's generators.
    """
    before = dict(os.environ)
    random_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        for name, value in variables.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        yield
    finally:
        random.setstate(random_state)
        np.random.set_state(numpy_state)
        for name in set(os.environ) - set(before):
            del os.environ[name]
        for name, value in before.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
