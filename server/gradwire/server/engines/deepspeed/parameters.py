"""Whole parameters and optimizer state of a job whose tensors may be spread over its ranks.

Everything here is a collective: all ranks call it in the same order. Knows where each ZeRO stage of
DeepSpeed 0.19 keeps master weights and moments. Does not know: files, segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gradwire.server.engines.deepspeed.lora import merged
from gradwire.server.engines.deepspeed.scorer import PlainWeights, Scorer
from gradwire.server.engines.deepspeed.trainer import Trainer


class Weights(Protocol):
    """Whole tensors by name, for reading."""

    @property
    def parameters(self) -> Mapping[str, nn.Parameter]:
        """The parameters behind them, in the model's order."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a whole tensor."""

    def weight(self, name: str) -> AbstractContextManager[Tensor]:
        """A whole tensor."""


def weights_of(trainer: Trainer | Scorer, *, merged: bool) -> Weights:
    """What a job trains; or its whole model with the adapter added to it. The whole model of one that scores."""
    if isinstance(trainer, Scorer):
        return PlainWeights(trainer.policy)
    return MergedWeights(trainer) if merged else FullState(trainer)


def base_weights(trainer: Trainer) -> Weights:
    """The whole model that a job's adapter is trained on, without it."""
    return MergedWeights(trainer, add=False)


class FullState:
    """Reads and writes what trains, one whole parameter at a time: all of a model, or an adapter."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._engine = trainer.engine
        self._stage = trainer.engine.zero_optimization_stage()
        self.parameters: dict[str, nn.Parameter] = trainer.policy.trained_parameters()

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a whole parameter."""
        parameter = self.parameters[name]
        return tuple(getattr(parameter, "ds_shape", parameter.shape))

    @contextmanager
    def weight(self, name: str) -> Iterator[Tensor]:
        """A whole parameter as the forward pass sees it, for reading."""
        parameter = self.parameters[name]
        if self._stage < 3:
            yield parameter.detach()
            return
        import deepspeed

        with deepspeed.zero.GatheredParameters([parameter]):
            yield parameter.detach()

    def master(self, name: str) -> Tensor:
        """A whole parameter in float32, as the optimizer sees it."""
        parameter = self.parameters[name]
        if self._stage == 0:
            return parameter.detach()
        from deepspeed.utils import safe_get_full_fp32_param

        return _whole(safe_get_full_fp32_param(parameter), self.shape(name))

    def moment(self, name: str, key: str) -> Tensor:
        """One of the optimizer's tensors for a parameter (`exp_avg`), float32. Only after a step."""
        parameter = self.parameters[name]
        if self._stage == 0:
            tensor: Tensor = self._trainer.optimizer.state[parameter][key]
            return tensor
        from deepspeed.utils import safe_get_full_optimizer_state

        return _whole(safe_get_full_optimizer_state(parameter, key), self.shape(name))

    def set_master(self, name: str, value: Tensor) -> None:
        """Replace a parameter; call `publish` after the last one."""
        parameter = self.parameters[name]
        if self._stage == 0:
            with torch.no_grad():
                parameter.copy_(value)
            return
        self._set_partition(parameter, value, None)

    def set_moment(self, name: str, key: str, value: Tensor) -> None:
        """Replace one of the optimizer's tensors; call `reset_optimizer` first."""
        parameter = self.parameters[name]
        if self._stage == 0:
            self._trainer.optimizer.state[parameter][key].copy_(value)
            return
        self._set_partition(parameter, value, key)

    def reset_optimizer(self, steps: int, keys: tuple[str, ...]) -> None:
        """Optimizer state of zeros after `steps` steps; none at all after no step."""
        state = self._trainer.optimizer.state
        state.clear()
        zero = self._engine.optimizer
        if hasattr(zero, "_hp_optimizer_states_linked"):
            zero._hp_optimizer_states_linked = False  # what it links to is gone
        if not steps or not keys:
            return
        for flat in self._optimized():
            state[flat] = {key: torch.zeros_like(flat) for key in keys}
            if "exp_avg" in keys:
                state[flat]["step"] = torch.tensor(float(steps), device=flat.device)
        # Stages 1 and 2 reach moments through links that are made at the first step.
        if hasattr(zero, "_lazy_init_hp_params_optimizer_state"):
            zero._lazy_init_hp_params_optimizer_state()

    def publish(self) -> None:
        """Bring replaced masters into the parameters of the forward pass."""
        optimizer = self._engine.optimizer
        if self._stage == 3:
            for group in range(len(optimizer.fp16_groups)):
                optimizer._reassign_or_swap_out_partitioned_parameters(group)
            if optimizer.persistent_parameters:
                optimizer.persistent_parameters[0].all_gather(optimizer.persistent_parameters)
        elif self._stage:
            optimizer.update_lp_params()

    def _optimized(self) -> list[Tensor]:
        """The tensors that torch's optimizer steps on this rank."""
        if self._stage == 3:
            return list(self._engine.optimizer.fp32_partitioned_groups_flat)
        return [tensor for group in self._trainer.optimizer.param_groups for tensor in group["params"]]

    def _set_partition(self, parameter: Any, value: Tensor, key: str | None) -> None:
        value = value.to(device=parameter.device, dtype=torch.float32).flatten()
        if self._stage < 3:
            parameter.set_full_hp_param(value, key)
            return
        # deepspeed.utils.safe_set_full_* run past the end of a tensor that the ranks do not divide evenly.
        size, world = parameter.partition_numel(), self._trainer.ranks.world
        padded = torch.nn.functional.pad(value, (0, size * world - value.numel()))
        own = padded.narrow(0, size * self._trainer.ranks.rank, size)
        self._engine.optimizer.set_local_hp_param(own, parameter, key)


class MergedWeights:
    """The whole model with the adapter added to it, under Hugging Face names. Rank 0 alone computes the sums.

    `add` False: without the adapter.
    """

    def __init__(self, trainer: Trainer, *, add: bool = True) -> None:
        self._factors = trainer.policy.factors if add else {}
        self._gather = trainer.engine.zero_optimization_stage() == 3
        self._adds = trainer.ranks.rank == 0
        self.parameters: dict[str, nn.Parameter] = trainer.policy.hf_parameters()

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a whole parameter."""
        parameter = self.parameters[name]
        return tuple(getattr(parameter, "ds_shape", parameter.shape))

    @contextmanager
    def weight(self, name: str) -> Iterator[Tensor]:
        """A whole weight with what the adapter adds to it; on other ranks than 0, without."""
        parameter, factors = self.parameters[name], self._factors.get(name)
        if not self._gather:
            yield merged(parameter, factors if self._adds else None)
            return
        import deepspeed

        together = [parameter, *((factors.a, factors.b) if factors else ())]
        with deepspeed.zero.GatheredParameters(together):
            yield merged(parameter, factors if self._adds else None)


def _whole(tensor: Any, shape: tuple[int, ...]) -> Tensor:
    if tensor is None:
        raise RuntimeError("deepspeed keeps no such state for this parameter")
    result: Tensor = tensor.detach().reshape(shape)
    return result
