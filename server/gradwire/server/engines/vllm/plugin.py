"""What vLLM loads in each of its processes (entry point group `vllm.general_plugins`).

It changes nothing for someone who uses vLLM without gradwire.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

BACKEND = "gradwire_shm"
FRONT_PID = "GRADWIRE_FRONT_PID"
"""Set in the environment of a server's engines: its front process."""
LOAD = "gradwire_load"
"""What an engine core answers to: (requests running, requests waiting, part of the key-value cache in use)."""


def register() -> None:
    """Make the shared-memory weight transfer known to vLLM, and leave Ctrl-C to the front. Legal twice."""
    front = os.environ.get(FRONT_PID)
    if front and front != str(os.getpid()):
        _answer_load()
    if front and front != str(os.getpid()) and threading.current_thread() is threading.main_thread():
        # A terminal sends it to all processes, and vLLM's end at once; the front lets calls under way finish first.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    _register_transfer()


def _answer_load() -> None:
    """Let an engine core say what its scheduler has to do: vLLM tells of that only in statistics of every step."""
    core = sys.modules.get("vllm.v1.engine.core")  # which loads the plugins; a worker's process may not have it
    if core is not None:
        setattr(core.EngineCore, LOAD, _load)


def _load(core: Any) -> tuple[int, int, float]:
    running, waiting = core.scheduler.get_request_counts()
    return running, waiting, core.scheduler.get_kv_cache_usage()


def _register_transfer() -> None:
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory

    try:
        WeightTransferEngineFactory.register_engine(
            BACKEND, "gradwire.server.engines.vllm.weight_transfer", "SharedMemoryWeightTransfer"
        )
    except ValueError:
        pass  # vLLM loads plugins more than once in a process
