"""The engine's own processes: which they are, what they hold, and their end."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

Processes = Sequence[psutil.Process]


def engine_processes(llm: AsyncLLM) -> Processes:
    """The engine cores and all their descendants (workers), alive now."""
    manager = llm.engine_core.resources.engine_manager
    found: list[psutil.Process] = []
    for process in getattr(manager, "processes", ()):
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(process.pid)
            found += [root, *root.children(recursive=True)]
    return found


def exit_text(llm: AsyncLLM) -> str:
    """How an engine core ended: "was killed by signal 9"."""
    manager = llm.engine_core.resources.engine_manager
    for process in getattr(manager, "processes", ()):
        if code := process.exitcode:
            return f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
    return "has died"


def kill_leftovers(processes: Processes, *, grace_s: float) -> None:
    """Wait for their end, then make it. Blocks."""
    _, alive = psutil.wait_procs(list(processes), timeout=grace_s)
    kill(alive)
    psutil.wait_procs(alive, timeout=grace_s)


def kill(processes: Processes) -> None:
    """Now; a stopped process, too."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
