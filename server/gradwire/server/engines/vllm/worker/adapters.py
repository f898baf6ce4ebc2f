"""Low-rank adapters in a worker: factors from a shared-memory segment into vLLM's slots, without a file.

`stage` may fail anywhere and touches nothing. `commit` puts a new version into the slot; `discard` takes even that
back until the next `stage`. vLLM multiplies alpha / rank into B and fuses q, k, v, so the factors as they came
are kept beside it, for checksums; `check` proves that the slots hold them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from vllm.lora.layers import BaseLayerWithLoRA
from vllm.lora.lora_model import LoRAModel
from vllm.lora.peft_helper import PEFTHelper
from vllm.lora.utils import parse_fine_tuned_lora_name

from gradwire.server.engines import host_memory
from gradwire.server.engines.vllm.worker.digest import DTYPE_NAMES


@dataclass(slots=True)
class _Held:
    """One version of an adapter: as vLLM has it, and as it came (by the names of peft's files)."""

    lora: LoRAModel
    raw: dict[str, torch.Tensor]
    scaling: float


@contextmanager
def without_adapters(model: nn.Module) -> Iterator[nn.Module]:
    """The model as if no layer were wrapped for adapters: parameters have their own names, and loaders find them."""
    wrapped = [(name, module) for name, module in model.named_modules() if isinstance(module, BaseLayerWithLoRA)]
    parents = [(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], m) for name, m in wrapped]
    try:
        for parent, leaf, module in parents:
            setattr(parent, leaf, module.base_layer)
        yield model
    finally:
        for parent, leaf, module in parents:
            setattr(parent, leaf, module)


class AdapterSlots:
    """The adapters of one worker, by vLLM's number."""

    def __init__(self, runner: Any) -> None:
        self._workers_manager = runner.lora_manager
        self._manager = runner.lora_manager._adapter_manager
        self._mapper = _renames(self._manager.model)
        self._held: dict[int, _Held] = {}
        self._staged: tuple[int, _Held] | None = None
        self._undo: tuple[int, _Held | None] | None = None
        # vLLM forgets all adapters when the model's own weights change; requests that use them may be waiting.
        self._vllm_reset = runner.reset_lora_state
        runner.reset_lora_state = self._reset

    def stage(self, number: int, tensors: Mapping[str, torch.Tensor], rank: int, alpha: float) -> None:
        """Build a new version of an adapter. Raises ValueError for what vLLM cannot take."""
        self._undo = self._staged = None
        helper = PEFTHelper.from_dict({"r": rank, "lora_alpha": alpha, "target_modules": []})
        helper.validate_legal(self._workers_manager.lora_config)
        raw = {name: tensor.clone() for name, tensor in tensors.items()}
        lora = LoRAModel.from_lora_tensors(
            number,
            {name: tensor.clone() for name, tensor in raw.items()},  # vLLM scales in place
            helper,
            device="cpu",
            dtype=self._workers_manager.lora_config.lora_dtype,
            model_vocab_size=self._workers_manager.vocab_size,
            weights_mapper=self._mapper,
        )
        self._manager._create_merged_loras_inplace(lora)
        if unknown := sorted(set(lora.loras) - set(self._manager.modules)):
            raise ValueError(f"vLLM takes no adapter on {len(unknown)} of its modules, among them {unknown[:3]}")
        self._staged = number, _Held(lora, raw, alpha / rank)

    def commit(self) -> None:
        """Put the staged version to work."""
        if self._staged is None:
            raise RuntimeError("no adapter was staged")
        number, held = self._staged
        self._undo, self._staged = (number, self._held.get(number)), None
        self._put(number, held)

    def discard(self) -> None:
        """Undo `stage`, and the `commit` after it. Legal at any time."""
        undo, self._undo, self._staged = self._undo, None, None
        if undo is not None:
            self._put(*undo)

    def remove(self, number: int) -> None:
        """Forget an adapter. Legal for one that is not there."""
        self._undo = None
        self._put(number, None)

    def squared_norm(self, number: int) -> float:
        """Sum of squares of an adapter's factors in float64."""
        self.check(number)
        return sum(float(tensor.double().square().sum()) for tensor in self._held[number].raw.values())

    def checksums(self, number: int) -> list[tuple[str, str, list[int], str]]:
        """As digest.checksums, of an adapter's factors as they came."""
        self.check(number)
        return [
            (name, DTYPE_NAMES[tensor.dtype], list(tensor.shape), _sha256(tensor))
            for name, tensor in self._held[number].raw.items()
        ]

    def check(self, number: int) -> None:
        """Raises RuntimeError when the slots do not hold the factors that came. Not with sharded layers."""
        held, slot = self._held[number], self._manager.lora_index_to_id.index(number)
        packed = self._manager.packed_modules.items()
        fused = {part: (name, index) for name, parts in packed for index, part in enumerate(parts)}
        for name, tensor in held.raw.items():
            module_name, is_a = parse_fine_tuned_lora_name(name, self._mapper)
            layer_name, part = fused.get(module_name, (module_name, 0))
            layer = self._manager.modules[layer_name]
            if layer.tp_size > 1:
                continue
            stacked = (layer.lora_a_stacked if is_a else layer.lora_b_stacked)[part][slot, 0]
            expected = tensor if is_a or held.scaling == 1 else tensor.clone().mul_(held.scaling)
            found = stacked[: tensor.shape[0], : tensor.shape[1]].cpu()
            if not torch.equal(found.nan_to_num(), expected.to(found.dtype).nan_to_num()):
                raise RuntimeError(f"{layer_name} computes with other factors than {name}")

    def _reset(self) -> None:
        self._vllm_reset()
        for number, held in list(self._held.items()):
            self._put(number, held)

    def _put(self, number: int, held: _Held | None) -> None:
        self._manager.remove_adapter(number)
        self._held.pop(number, None)
        if held is not None:
            self._manager.add_adapter(held.lora)
            self._manager.activate_adapter(number)
            self._held[number] = held


def _renames(model: Any) -> Any:
    """How a model's checkpoints name what vLLM names otherwise, as vLLM's own loader of adapters takes it."""
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    return None if mapper is None else mapper.get_rename_mapper()


def _sha256(tensor: torch.Tensor) -> str:
    return hashlib.sha256(host_memory.bytes_of(tensor.contiguous())).hexdigest()
