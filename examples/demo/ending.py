"""How an example ends: whatever ends it, what it has started is stopped in order first."""

from __future__ import annotations

import signal
from collections.abc import Callable

from demo.terminal import Terminal
from gradwire.client import GradwireError


def exit_code(work: Callable[[], None], terminal: Terminal) -> int:
    """Runs `work`: 0; 1 with the reason when it fails; 130 when it is interrupted."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        work()
    except KeyboardInterrupt:
        terminal.say("interrupted")
        return 130
    except (GradwireError, RuntimeError, OSError) as error:
        terminal.say(f"failed: {error}")
        return 1
    return 0


def _interrupt(*_: object) -> None:
    """SIGTERM and a closed terminal are as Ctrl-C: the server must not be left behind."""
    raise KeyboardInterrupt
