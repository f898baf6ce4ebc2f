"""Values of the wire <-> a policy's: a string is an array, an object has keys, an array positions, null is none.

On the wire every array has a leading batch dimension, which is 1 for a call that is not batched: such a call and a
batch of one look the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradwire.server.engines.acting import Value
from gradwire.server.errors import InvalidArgument
from gradwire.server.http.arena.npy import Array, read_array, write_array

_MAX_DEPTH = 16
_MAX_ARRAYS = 4096


class _Room:
    """Arrays that a request may still hold."""

    def __init__(self) -> None:
        self.left = _MAX_ARRAYS


def read_value(data: Any, path: str) -> Value:
    """The value at `path`; raises InvalidArgument."""
    return _read(data, path, 0, _Room())


def _read(data: Any, path: str, depth: int, room: _Room) -> Value:
    if data is None:
        return None
    if isinstance(data, str):
        room.left -= 1
        if room.left < 0:
            raise InvalidArgument.at(path, f"a request holds at most {_MAX_ARRAYS} arrays")
        return _batch(read_array(data, path), path)
    if depth >= _MAX_DEPTH:
        raise InvalidArgument.at(path, f"is nested deeper than {_MAX_DEPTH}")
    if isinstance(data, dict):
        return {key: _read(item, f"{path}.{key[:60]}", depth + 1, room) for key, item in data.items()}
    if isinstance(data, list):
        return tuple(_read(item, f"{path}[{index}]", depth + 1, room) for index, item in enumerate(data))
    raise InvalidArgument.at(
        path, f"is a JSON {type(data).__name__}; write an array as base64 of a .npy file, in a string"
    )


def _batch(array: Array, path: str) -> Array:
    if array.ndim == 0:
        raise InvalidArgument.at(path, "has no dimension; the first one is the batch, which is 1 for a single item")
    return array


def first_rows(value: Value, path: str) -> int:
    """The batch dimension, of the first array; raises InvalidArgument when there is none."""
    while isinstance(value, Mapping | tuple | list):
        if not value:
            break
        value = next(iter(value.values())) if isinstance(value, Mapping) else value[0]
    if not isinstance(value, np.ndarray):
        raise InvalidArgument.at(path, "holds no array")
    return int(value.shape[0])


def write_value(value: Value) -> Any:
    """JSON of a value whose arrays have their batch dimension."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {str(key): write_value(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [write_value(item) for item in value]
    return write_array(np.asarray(value))
