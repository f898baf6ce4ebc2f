"""What a caller's argument was and what it may be: Python's own errors say neither, nor which one is meant.

Knows: words. Does not know: any call, nor what a message's fields take (`_convert.wanted` does).
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")
_MOST = 60


def given(value: object) -> str:
    """A value, cut where it is long, and its type."""
    shown = repr(value)
    return f"{shown if len(shown) <= _MOST else shown[:_MOST] + '...'} ({type(value).__name__})"


def whole(value: object, where: str, wants: str = "a whole number") -> int:
    """A whole number. TypeError says what `where` was given and what it `wants`."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)  # type: ignore[arg-type]  # what else it may be is told below
    except TypeError:
        pass
    raise TypeError(f"{where} is {given(value)}; it takes {wants}")


def items(values: Iterable[T], where: str, wants: str) -> list[T]:
    """Several values. TypeError says what `where` was given and what it `wants`: text and dicts are one value."""
    try:
        if not isinstance(values, str | bytes | Mapping):
            return list(values)
    except TypeError:
        pass
    raise TypeError(f"{where} is {given(values)}; it takes {wants}")


def check(value: object, where: str, kinds: type | tuple[type, ...], wants: str, *, secret: bool = False) -> None:
    """TypeError, with the value itself unless it may be a `secret`, if it is not of one of the `kinds`.

    True and False are numbers only where `kinds` has bool.
    """
    known = kinds if isinstance(kinds, tuple) else (kinds,)
    if not isinstance(value, known) or (isinstance(value, bool) and bool not in known):
        shown = f"of type {type(value).__name__}" if secret else given(value)
        raise TypeError(f"{where} is {shown}; it takes {wants}")
