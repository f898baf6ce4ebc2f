"""Sleep and wake on the CPU, where vLLM does nothing: the memory is freed for real.

KV blocks are dropped. Weights are dropped with their packed copies; how they come back depends on
the level: 1 writes them to a file without a name (gone with the process), 2 keeps nothing and
loads the model's folder. Storages are emptied and refilled in place, so every view stays valid.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from vllm.config import set_current_vllm_config
from vllm.model_executor.model_loader import get_model_loader
from vllm.v1.worker.cpu_worker import CPUWorker

from gradwire.server.engines import host_memory
from gradwire.server.engines.spill import SpillFile
from gradwire.server.engines.vllm.worker import cpu_linear
from gradwire.server.engines.vllm.worker.adapters import without_adapters
from gradwire.server.engines.vllm.worker.staging import require_all


class _Asleep:
    """What a sleeping worker remembers."""

    def __init__(self) -> None:
        self.kv_sizes: list[tuple[torch.Tensor, int]] = []
        self.weight_sizes: list[tuple[torch.Tensor, int]] = []
        self.spill: SpillFile | None = None


def install() -> None:
    """Replace vLLM's two methods that do nothing."""
    CPUWorker.sleep = _sleep
    CPUWorker.wake_up = _wake_up


def _sleep(self: CPUWorker, level: int = 1) -> None:
    state = vars(self).setdefault("_gradwire_asleep", _Asleep())
    if not state.weight_sizes:
        _drop_weights(self.model_runner.get_model(), state, keep=level == 1)
    if not state.kv_sizes:
        state.kv_sizes = _free_all(_kv_tensors(self))
    host_memory.release_to_system()


def _wake_up(self: CPUWorker, tags: list[str] | None = None) -> None:
    state = vars(self).setdefault("_gradwire_asleep", _Asleep())
    if state.weight_sizes and (tags is None or "weights" in tags):
        with set_current_vllm_config(self.vllm_config):
            _restore_weights(self, state)
    if state.kv_sizes and (tags is None or "kv_cache" in tags):
        for tensor, nbytes in state.kv_sizes:
            host_memory.restore(tensor, nbytes, zero=True)
        state.kv_sizes = []


def _kv_tensors(worker: CPUWorker) -> Iterator[torch.Tensor]:
    for cache in worker.model_runner.kv_caches:
        yield from cache if isinstance(cache, list) else [cache]


def _free_all(tensors: Iterator[torch.Tensor]) -> list[tuple[torch.Tensor, int]]:
    """Free each distinct storage; (a tensor of it, its bytes)."""
    sizes = []
    for tensor in tensors:
        if nbytes := tensor.untyped_storage().nbytes():
            host_memory.free(tensor)
            sizes.append((tensor, nbytes))
    return sizes


def _drop_weights(model: nn.Module, state: _Asleep, *, keep: bool) -> None:
    parameters = [parameter.data for parameter in model.parameters()]
    if keep:
        state.spill = _spill(parameters)
    for module in model.modules():
        if cpu_linear.is_packed(module):
            cpu_linear.drop(module)
    state.weight_sizes = _free_all(iter(parameters))


def _restore_weights(worker: CPUWorker, state: _Asleep) -> None:
    model = worker.model_runner.get_model()
    for tensor, nbytes in state.weight_sizes:
        host_memory.restore(tensor, nbytes)
    if state.spill is None:
        loader = get_model_loader(worker.vllm_config.load_config)
        weights = loader.get_all_weights(worker.model_config, model)
        with without_adapters(model):
            require_all(dict(model.named_parameters()), model.load_weights(weights))
    else:
        for parameter in model.parameters():
            state.spill.read_into(host_memory.bytes_of(parameter.data))
        state.spill.close()
        state.spill = None
    for module in model.modules():
        if cpu_linear.is_packed(module):
            module.cpu_linear = cpu_linear.pack(module)
    state.weight_sizes = []
    host_memory.release_to_system()


def _spill(tensors: list[torch.Tensor]) -> SpillFile:
    """The tensors' bytes in a file. ResourceExhausted when they do not fit; nothing has changed then."""
    views = [host_memory.bytes_of(tensor) for tensor in tensors]
    file = SpillFile(sum(view.nbytes for view in views))
    try:
        for view in views:
            file.write(view)
        file.finish()
    except BaseException:
        file.close()
        raise
    return file
