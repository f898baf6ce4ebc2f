"""Seeded requests on the CPU: undo the random draw of a token that is thrown away.

When a prompt is read in several steps, vLLM samples at the end of each and discards all but the
last; for a request with a seed it then moves the generator back by one draw. It does that by the
generator's offset, which a CPU generator has not: the engine's process would die. Here the state
is saved before the draw and put back after it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from vllm.v1.worker.cpu_model_runner import CPUModelRunner

_vllm_sample = CPUModelRunner._sample
_vllm_bookkeeping = CPUModelRunner._bookkeeping_sync


def install() -> None:
    """Replace the two methods on vLLM's CPU model runner."""
    CPUModelRunner._sample = _sample
    CPUModelRunner._bookkeeping_sync = _bookkeeping_sync


def _discarded(runner: CPUModelRunner) -> list[int]:
    """Rows of the batch whose sampled token is thrown away and that have a generator."""
    batch = runner.input_batch
    if not batch.generators:
        return []
    rows = np.nonzero(runner.discard_request_mask.np[: batch.num_reqs])[0]
    return [int(row) for row in rows if int(row) in batch.generators]


def _sample(self: CPUModelRunner, *args: Any, **kwargs: Any) -> Any:
    generators = self.input_batch.generators
    saved = {row: generators[row].get_state() for row in _discarded(self)}
    output = _vllm_sample(self, *args, **kwargs)
    for row, state in saved.items():
        generators[row].set_state(state)
    return output


def _bookkeeping_sync(self: CPUModelRunner, *args: Any, **kwargs: Any) -> Any:
    generators = self.input_batch.generators
    hidden = {row: generators.pop(row) for row in _discarded(self)}  # already rewound
    try:
        return _vllm_bookkeeping(self, *args, **kwargs)
    finally:
        generators.update(hidden)
