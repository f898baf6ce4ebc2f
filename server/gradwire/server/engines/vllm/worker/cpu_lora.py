"""Adapters on the CPU: the rows of each, and only those.

vLLM's torch kernels gather a copy of the factors for every token, and in a batch where some requests have an
adapter and some have none they give those without the adapter of the last slot (index -1). `install` puts two
small matrix products for each adapter in the batch in their place, over its own rows.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

Rows = list[tuple[int, torch.Tensor | None]]
"""Slot, and int64 positions of its tokens; None: all of the batch."""

_vllm_update_metadata = PunicaWrapperCPU.update_metadata


def install() -> None:
    """Replace vLLM's two methods."""
    PunicaWrapperCPU.update_metadata = _update_metadata
    PunicaWrapperCPU.add_lora_linear = _add_lora_linear


def _update_metadata(self: PunicaWrapperCPU, *args: Any, **kwargs: Any) -> None:
    _vllm_update_metadata(self, *args, **kwargs)
    self._gradwire_rows = rows_of(self.token_lora_indices)


def rows_of(slots: torch.Tensor) -> Rows:
    """The tokens of each slot, from the slot of each token (-1: none)."""
    used = [int(slot) for slot in slots.unique() if slot >= 0]
    if len(used) == 1 and bool((slots == used[0]).all()):
        return [(used[0], None)]
    return [(slot, (slots == slot).nonzero()[:, 0]) for slot in used]


def _add_lora_linear(
    self: PunicaWrapperCPU,
    y: torch.Tensor,
    x: torch.Tensor,
    lora_a_stacked: tuple[torch.Tensor, ...],
    lora_b_stacked: tuple[torch.Tensor, ...],
    scale: float,
    output_slices: tuple[int, ...],
    **_: Any,
) -> None:
    """y [T, out] += scale * x [T, in] A^T B^T, with the factors [slots, 1, ...] of each token's slot, in place."""
    y, x = y.view(-1, y.shape[-1]), x.view(-1, x.shape[-1])
    for slot, rows in self._gradwire_rows:
        own = x if rows is None else x.index_select(0, rows)
        start = 0
        for a, b, size in zip(lora_a_stacked, lora_b_stacked, output_slices, strict=True):
            delta = (own @ a[slot, 0].t()) @ b[slot, 0].t()
            target = y[:, start : start + size]
            if rows is None:
                target.add_(delta, alpha=scale)
            else:
                target.index_add_(0, rows, delta, alpha=scale)
            start += size
