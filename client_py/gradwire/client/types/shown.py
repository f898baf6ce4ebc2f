"""How the clients' dataclasses show themselves: what is set, arrays by type and shape, long things cut.

Knows: sizes that a screen can bear. Does not know: what the fields mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from enum import Enum
from itertools import islice
from typing import Any

import numpy as np

_TEXT = 80
_SCALARS = 8  # of a sequence of them
_ENTRIES = 24  # of a mapping of scalars: all of a result's metrics,
_INNER_ENTRIES = 4  # and of one inside of others: a message of a conversation
_FIELDS = (None, 6, 3, 3, 3)  # of a dataclass, by how deep it lies in others; deeper none
_DEPTH = 6  # of lists in lists: one may hold itself
_SCALAR_TYPES = (int, float, str, Enum, np.generic, type(None))


class Bounded:
    """What cuts its repr by itself, so that others show it whole."""

    __slots__ = ()


class Brief:
    """`SamplingParams(max_tokens=4)` instead of a line of Nones; `token_ids=int32[4, 512]` instead of a screen of ids.

    Fields that are None are left out, and so are those with repr=False. An ellipsis stands for what is cut, with the
    count where it is of items. For a dataclass that says repr=False itself, or dataclass() writes another.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return _object(self, 0)


def brief(value: Any) -> str:
    """A value as a field of a `Brief` is shown."""
    return _shown(value, 1)


def _object(value: Brief, depth: int) -> str:
    own: Any = value
    pairs = [(field.name, getattr(own, field.name, None)) for field in fields(own) if field.repr]  # it may be half made
    pairs = [(name, found) for name, found in pairs if found is not None]
    limit = _FIELDS[depth] if depth < len(_FIELDS) else 0
    parts = [f"{name}={_shown(found, depth + 1)}" for name, found in pairs[:limit]]
    return f"{type(own).__name__}({', '.join(parts if len(parts) == len(pairs) else [*parts, '…'])})"


def _shown(value: Any, depth: int) -> str:
    """A value that cannot be shown is named by its type: who looks at a result, or logs it, is to see the rest."""
    try:
        return _written(value, depth)
    except Exception as error:
        return f"<{type(value).__name__}, which cannot be shown: {type(error).__name__}>"


def _written(value: Any, depth: int) -> str:
    match value:
        case Brief():
            return _object(value, depth) if type(value).__repr__ is Brief.__repr__ else _cut(repr(value))
        case Bounded():
            return repr(value)
        case Enum():
            return f"{type(value).__name__}.{value.name}"
        case str():
            return repr(value) if len(value) <= _TEXT else f"{value[:_TEXT]!r}… ({len(value)} characters)"
        case bytes() | bytearray():
            return f"bytes[{len(value)}]"
        case datetime():
            return value.isoformat(" ", "seconds")
        case np.generic():
            return repr(value.item())
        case Mapping() | list() | tuple() if depth > _DEPTH:
            return "…"
        case Mapping():
            return _mapping(value, depth)
        case list() | tuple():
            return _sequence(value, depth)
    if hasattr(value, "dtype") and isinstance(getattr(value, "shape", None), tuple):  # of numpy, torch and the like
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]"
    return _cut(repr(value))


def _sequence(value: Sequence[Any], depth: int) -> str:
    limit = _SCALARS if _scalars(value) else _others(depth)
    items = [_shown(item, depth + 1) for item in value[:limit]]
    text = _listed(items, len(value))
    if isinstance(value, list):
        return f"[{text}]"
    return f"({text},)" if len(value) == 1 else f"({text})"


def _mapping(value: Mapping[Any, Any], depth: int) -> str:
    limit = _others(depth)
    if _scalars(value.values()):
        limit = _ENTRIES if depth == 1 else _INNER_ENTRIES
    items = [f"{_shown(key, depth + 1)}: {_shown(item, depth + 1)}" for key, item in islice(value.items(), limit)]
    return f"{{{_listed(items, len(value))}}}"


def _listed(items: list[str], count: int) -> str:
    return ", ".join([*items, f"… {count - len(items)} more"] if count > len(items) else items)


def _others(depth: int) -> int:
    return 2 if depth == 1 else 1  # the first two of a batch: each holds more of the kind


def _scalars(values: Iterable[Any]) -> bool:
    return all(isinstance(value, _SCALAR_TYPES) for value in values)


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"
