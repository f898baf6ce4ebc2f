"""ArcticRLWarning, told at the line of the user's that called.

Knows: frames. A call of the sync client runs on another thread, where no frame is the user's, so it takes its
caller's place along.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Coroutine
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
_OURS = {"gradwire", "asyncio", "uvloop"}  # a coroutine's frames lie between the event loop's


class ArcticRLWarning(UserWarning):
    """A setting or a batch says something that has no effect, or was completed by a default."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a program."""

    file: str
    line: int
    module: str
    registry: dict[Any, Any]
    """Python's memory of what was told there."""


_caller: ContextVar[Place | None] = ContextVar("caller", default=None)


def here() -> Place:
    """Where the innermost code is that is neither ours nor the event loop's; the outermost where all is."""
    frame: FrameType = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _OURS:
        frame = frame.f_back
    told = frame.f_globals.setdefault("__warningregistry__", {})
    return Place(frame.f_code.co_filename, frame.f_lineno, str(frame.f_globals.get("__name__")), told)


async def called_from(place: Place, work: Coroutine[Any, Any, T]) -> T:
    """`work`, whose warnings belong to a line of another thread. For a task of its own."""
    _caller.set(place)
    return await work


def warn(text: str) -> None:
    """Warns at the caller's line; once for each text and line, unless the program's filters say other."""
    place = _caller.get() or here()
    warnings.warn_explicit(text, ArcticRLWarning, place.file, place.line, place.module, place.registry)
