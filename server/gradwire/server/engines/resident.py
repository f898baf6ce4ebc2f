"""How much memory processes hold."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import psutil  # type: ignore[import-untyped]


def resident_bytes(processes: Iterable[psutil.Process]) -> int:
    """Memory of processes together: a page that k of them share counts once where the system says so.

    Linux does (proportional set size); elsewhere it is the sum of the resident sizes. Processes that are gone
    count nothing.
    """
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += _resident(process)
    return total


def _resident(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.AccessDenied):
        full = process.memory_full_info()
        if hasattr(full, "pss"):
            return int(full.pss)
    return int(process.memory_info().rss)
