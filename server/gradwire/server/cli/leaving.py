"""The very end of a server's process."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

_LAST_S = 1.0  # for killed processes to be gone


def leave(code: int, last: Callable[[], None]) -> NoReturn:
    """End this process, as Python does but for one thing: objects are not taken apart, one by one.

    With the engines' libraries loaded that takes 3 s, in which nothing happens that anybody would notice. Threads are
    waited for, and what was left for the exit is done; `last` is called after it.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # as multiprocessing ends its processes
    atexit._run_exitfuncs()
    last()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads any more
            stream.flush()
    os._exit(code)


def leave_at_once(code: int) -> NoReturn:
    """Kill all processes below this one, and end it: somebody is in a hurry."""
    try:
        import psutil  # type: ignore[import-untyped]
    except ModuleNotFoundError:  # it comes with the engines, and without them there are no processes
        os._exit(code)
    for _ in range(3):  # one that was just being started may come late; the next round finds it
        children = psutil.Process().children(recursive=True)
        if not children:
            break
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, timeout=_LAST_S)
    os._exit(code)
