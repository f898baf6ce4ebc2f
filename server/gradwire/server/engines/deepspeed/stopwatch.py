"""How long the parts of a call took on one rank."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from gradwire.server.losses.metrics import Metric, Reduction


class Stopwatch:
    """Adds up times by part, in seconds. On CUDA each part waits for its kernels."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._spent: dict[str, float] = defaultdict(float)

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """Count the block's time to a part."""
        started = self._now()
        yield
        self._spent[part] += self._now() - started

    def metrics(self) -> Mapping[str, Metric]:
        """`PART_seconds`; of several ranks the slowest counts."""
        return {f"{part}_seconds": Metric(Reduction.MAX, seconds) for part, seconds in self._spent.items()}

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()
