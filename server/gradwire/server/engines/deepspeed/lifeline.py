"""A worker must not outlive the front process, however that one ends.

The front holds the write end of a pipe that is the worker's standard input; the kernel closes it when the
front dies, also by SIGKILL. On Linux the kernel is asked for a signal too, which reaches a worker
that is deep in a computation. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading

PR_SET_PDEATHSIG = 1


def tie_to_parent(parent: int) -> None:
    """End this process when `parent`, which started it and holds its standard input, is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
    threading.Thread(target=_wait_for_end, name="lifeline", daemon=True).start()


def _wait_for_end() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)
