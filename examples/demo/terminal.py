"""What the demo prints: lines that stay, and one live line below them where there is a terminal."""

from __future__ import annotations

import shutil
import sys
import time


class Terminal:
    """Prints lines with the time since the start in front."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self._live = sys.stdout.isatty()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.began

    def say(self, text: str) -> None:
        """A line that stays."""
        self._clear()
        print(f"{self._clock()}  {text}", flush=True)

    def write(self, text: str) -> None:
        """Text as it comes, without a line's end: of a stream."""
        print(text, end="", flush=True)

    def live(self, text: str) -> None:
        """A line that the next one replaces. Nothing where output goes to a file."""
        if self._live:
            self._clear()
            width = shutil.get_terminal_size().columns
            print(f"{self._clock()}  {text}"[: width - 1], end="", flush=True)

    def _clear(self) -> None:
        if self._live:
            print("\r\033[K", end="")

    def _clock(self) -> str:
        minutes, seconds = divmod(int(self.seconds), 60)
        return f"{minutes:2d}:{seconds:02d}"
