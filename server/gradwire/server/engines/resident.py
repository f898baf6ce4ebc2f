"""How much memory processes hold."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

import psutil  # type: ignore[import-untyped]

OWN = ("Pss_Anon", "Pss_Shmem")


def resident_bytes(processes: Iterable[psutil.Process]) -> int:
    """Memory of processes together, without files that they map: the system takes those pages back when it likes.

    A page that k processes share counts as 1/k in each (proportional set size). Where the system does not say
    (Linux says it since 5.4), this is the sum of the resident sizes. Processes that are gone count nothing.
    """
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += _resident(process)
    return total


def _resident(process: psutil.Process) -> int:
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return int(process.memory_info().rss)
    kibibytes = {name: value.split()[0] for name, colon, value in (line.partition(":") for line in lines[1:])}
    if any(name not in kibibytes for name in OWN):
        return int(process.memory_info().rss)
    return sum(int(kibibytes[name]) for name in OWN) << 10
