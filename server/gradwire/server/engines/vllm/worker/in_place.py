"""New weights loaded over the old ones, with a copy of the old ones in host memory (GPU).

A GPU has seldom room for two sets of weights, and captured graphs hold on to the addresses of the
first: so the values are replaced in place. The copy in host memory makes an update that fails in
the middle reversible.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from gradwire.server.engines.vllm.worker.staging import require_all


class InPlaceWeights:
    """Weights that are loaded already and can still be taken back. Call it while paused."""

    def __init__(self, model: nn.Module) -> None:
        self._named = dict(model.named_parameters())
        self._old = {name: parameter.detach().to("cpu", copy=True) for name, parameter in self._named.items()}

    @classmethod
    def load(cls, model: nn.Module, model_config: Any, weights: Iterable[tuple[str, torch.Tensor]]) -> InPlaceWeights:
        """Load Hugging Face tensors through the model's own loader.

        On an error the old values are put back first. Raises ValueError for a quantised model
        (its weights are no longer those of the checkpoint) and for parameters without a value.
        """
        if model_config.quantization is not None:
            raise ValueError(f"weights of a model quantised by {model_config.quantization} cannot be replaced")
        update = cls(model)
        try:
            require_all(update._named, model.load_weights(weights))
        except BaseException:
            update.discard()
            raise
        return update

    def commit(self) -> None:
        """Keep the new values."""
        self._old = {}

    @torch.no_grad()
    def discard(self) -> None:
        """Put the old values back."""
        for name, old in self._old.items():
            self._named[name].copy_(old)
        self._old = {}
