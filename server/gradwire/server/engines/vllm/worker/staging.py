"""New weights built beside the old ones, then put to work all at once (CPU).

`stage` may fail anywhere: the model is as it was. `commit` only exchanges pointers. Between the
two the engine can go on with the old weights. Costs one more copy of the model while it lasts.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from gradwire.server.engines.vllm.worker import cpu_linear
from gradwire.server.engines.vllm.worker.cpu_linear import Linear


class StagedWeights:
    """One complete set of weights for a model, not yet in use."""

    def __init__(self, model: nn.Module) -> None:
        self._tensors: dict[nn.Parameter, torch.Tensor] = {}
        self._linears: dict[nn.Module, Linear] = {}
        self._model = model

    @classmethod
    def stage(cls, model: nn.Module, weights: Iterable[tuple[str, torch.Tensor]]) -> StagedWeights:
        """Load Hugging Face tensors through the model's own loader into new memory, and pack them.

        Raises ValueError when a parameter of the model got no value.
        """
        staged = cls(model)
        named = dict(model.named_parameters())
        old = {parameter: parameter.data for parameter in named.values()}
        try:
            for parameter in old:
                parameter.data = torch.empty_like(parameter.data)
            require_all(named, model.load_weights(weights))
            for module in model.modules():
                if cpu_linear.is_packed(module):
                    staged._linears[module] = cpu_linear.pack(module)
            staged._tensors = {parameter: parameter.data for parameter in old}
        finally:
            for parameter, tensor in old.items():
                parameter.data = tensor
        return staged

    def commit(self) -> None:
        """Use the staged weights from the next step on; the old ones are freed."""
        for parameter, tensor in self._tensors.items():
            parameter.data = tensor
        for module, linear in self._linears.items():
            module.cpu_linear = linear
        self.discard()

    def discard(self) -> None:
        """Free what is staged; the model never saw it."""
        self._tensors, self._linears = {}, {}


def require_all(named: dict[str, nn.Parameter], loaded: set[str] | None) -> None:
    """Raises ValueError naming parameters that a load left out (None: the model does not tell)."""
    if loaded is None:
        return
    missing = sorted(set(named) - loaded)
    if missing:
        raise ValueError(f"no value for {len(missing)} parameters, among them {missing[:3]}")
