"""What is left of a timeout that several calls share."""

from __future__ import annotations

import math
import time


class Countdown:
    """Counts `seconds` down from now; None never ends."""

    def __init__(self, seconds: float | None) -> None:
        self._end = math.inf if seconds is None else time.monotonic() + seconds

    def left(self) -> float:
        """Seconds left, as a call's `timeout`: above 0, infinite for no limit."""
        return max(self._end - time.monotonic(), 0.001)
