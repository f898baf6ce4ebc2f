"""What callers send, checked against spaces and made into a network's inputs; errors name the place in the request.

Knows: shapes, dtypes, ranges, masks, batch dimensions. Does not know: ONNX, heads, or which policy is asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gradwire.server.engines.acting import Array, Value
from gradwire.server.engines.policy.manifest import Normalization
from gradwire.server.engines.policy.spaces import (
    Box,
    Dict,
    Discrete,
    Leaf,
    MultiBinary,
    MultiDiscrete,
    Space,
    Tuple,
)
from gradwire.server.errors import InvalidArgument

_FEW = 4096  # elements; BLAS may take threads for more


def rows_of(space: Space, value: Value, path: str) -> int:
    """The batch dimension of a batched observation, from its first leaf."""
    while isinstance(space, Dict | Tuple):
        key, space = next(iter(_children(space)))
        value, path = _child(value, key, path)
    array = as_array(value, path)
    if array.ndim == 0 or array.shape[0] == 0:
        raise InvalidArgument.at(path, "is batched, so its first dimension is the batch and has to be 1 or more")
    return int(array.shape[0])


def flatten(
    space: Space, value: Value, rows: int, batched: bool, path: str, name: str, strict: bool
) -> dict[str, Array]:
    """The checked leaves by input name, each (rows, *shape). `strict`: refuse real numbers outside their box."""
    if isinstance(space, Dict | Tuple):
        children = _children(space)
        _check_keys(space, value, [key for key, _ in children], path)
        found: dict[str, Array] = {}
        for key, child in children:
            part, at = _child(value, key, path)
            found |= flatten(child, part, rows, batched, at, f"{name}.{key}", strict)
        return found
    return {name: check_leaf(space, with_batch(value, tuple(space.shape), rows, batched, path), path, strict)}


def _children(space: Dict | Tuple) -> list[tuple[str | int, Space]]:
    return list(space.spaces.items()) if isinstance(space, Dict) else list(enumerate(space.spaces))


def _child(value: Value, key: str | int, path: str) -> tuple[Value, str]:
    if isinstance(key, str):
        if not isinstance(value, Mapping) or key not in value:
            raise InvalidArgument.at(path, f"has no {key!r}, which the space has")
        return value[key], f"{path}.{key}"
    if not isinstance(value, tuple | list) or key >= len(value):
        raise InvalidArgument.at(path, f"has no item {key}, which the space has")
    return value[key], f"{path}[{key}]"


def _check_keys(space: Dict | Tuple, value: Value, keys: list[str | int], path: str) -> None:
    if isinstance(space, Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(keys):
            raise InvalidArgument.at(path, f"must be a list of {len(keys)} items, as the space is")
        return
    if not isinstance(value, Mapping):
        raise InvalidArgument.at(path, f"must be a map with the keys {', '.join(map(str, keys))}")
    unknown = sorted(set(value) - set(keys), key=str)
    if unknown:
        raise InvalidArgument.at(f"{path}.{unknown[0]}", f"is not in the space, which has {', '.join(map(str, keys))}")


def as_array(value: Value, path: str) -> Array:
    """The value as one array of numbers."""
    if not isinstance(value, np.ndarray) and (value is None or isinstance(value, Mapping | tuple | list)):
        raise InvalidArgument.at(path, "must be one array")
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise InvalidArgument.at(path, f"is of dtype {array.dtype}; it must hold numbers")
    return array


def all_finite(array: Array) -> bool:
    """No NaN and no infinity is in it."""
    # A sum of squares is finite only where all of them are, and takes half the time. (float16 overflows soon.)
    few = array.size <= _FEW and array.dtype.itemsize >= 4
    return (few and math.isfinite(np.vdot(array, array))) or bool(np.isfinite(array).all())


def with_batch(value: Value, shape: tuple[int, ...], rows: int, batched: bool, path: str) -> Array:
    """The array as (rows, *shape), which an unbatched value gets its first dimension for."""
    array = as_array(value, path)
    wanted = (rows, *shape) if batched else shape
    if array.shape != wanted:
        hint = ""
        if array.shape[1:] == shape and not batched:
            hint = "; set batched if the first dimension is a batch"
        raise InvalidArgument.at(path, f"has shape {list(array.shape)}; it must be {list(wanted)}{hint}")
    return array if batched else array[None]


def check_leaf(space: Leaf, array: Array, path: str, strict: bool) -> Array:
    """The batch, checked: dtype, NaN and range."""
    if isinstance(space, Box):
        _check_box(space, array, path, strict)
        return array
    if array.dtype.kind == "f" or (array.dtype.kind == "b" and not isinstance(space, MultiBinary)):
        raise InvalidArgument.at(path, f"is of dtype {array.dtype}; a {space.type} space takes integers")
    if isinstance(space, MultiBinary):
        low: Any = 0
        high: Any = 1
    elif isinstance(space, MultiDiscrete):
        low, high = space.start_array, space.start_array + np.array(space.nvec) - 1
    else:
        low, high = space.start, space.start + space.n - 1
    _check_range(array, low, high, path)
    return array


def _check_box(space: Box, array: Array, path: str, strict: bool) -> None:
    integers = space.numpy_dtype.kind in "iu"
    if array.dtype.kind == "b" or (integers and array.dtype.kind == "f"):
        raise InvalidArgument.at(path, f"is of dtype {array.dtype}; the space is of {space.dtype}")
    if array.dtype.kind == "f" and not all_finite(array):
        raise InvalidArgument.at(path, "holds NaN or infinity; observations must be finite")
    if (strict or integers) and (space.limited or (integers and array.dtype != space.numpy_dtype)):
        _check_range(array, *space.limits, path)


def _check_range(array: Array, low: Any, high: Any, path: str) -> None:
    bad = (array < low) | (array > high)
    if bool(bad.any()):
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        least, most = (np.broadcast_to(bound, array.shape)[index] for bound in (low, high))
        raise InvalidArgument.at(
            path, f"is {array[index]} at {list(index)} of the batch; it must be in [{least}, {most}]"
        )


def normalize(array: Array, normalization: Normalization, shape: tuple[int, ...]) -> Array:
    """float32 clip((x - mean) / sqrt(variance + epsilon), -clip, clip)"""
    mean = np.array(normalization.mean, np.float64).reshape(shape)
    variance = np.array(normalization.variance, np.float64).reshape(shape)
    scaled = (array - mean) / np.sqrt(variance + normalization.epsilon)
    if normalization.clip is not None:
        scaled = np.clip(scaled, -normalization.clip, normalization.clip)
    return scaled.astype(np.float32)


def check_mask(space: Leaf, value: Value, rows: int, batched: bool, path: str) -> npt.NDArray[np.bool_]:
    """A mask as bool (rows, width), True where allowed.

    Width is n of a Discrete space, the sum of nvec of a MultiDiscrete one (one choice's entries after the other's), and
    the number of elements of a MultiBinary one, where 0 keeps a bit at 0.
    """
    if isinstance(space, Box):
        raise InvalidArgument.at(path, "cannot be given: a Box action space has nothing to mask")
    if isinstance(space, MultiBinary):
        shape: tuple[int, ...] = tuple(space.shape)
    else:
        shape = (space.n,) if isinstance(space, Discrete) else (sum(space.nvec),)
    array = with_batch(value, shape, rows, batched, path)
    if array.dtype.kind != "b" and bool(((array != 0) & (array != 1)).any()):
        raise InvalidArgument.at(path, "must hold 1 where an action is allowed and 0 where it is not")
    mask = array.astype(np.bool_).reshape(rows, -1)
    starts = _choice_starts(space)
    if starts is not None:
        open_choices = np.logical_or.reduceat(mask, starts, axis=1)
        if not bool(open_choices.all()):
            row, choice = (int(i) for i in np.argwhere(~open_choices)[0])
            what = f"choice {choice}" if isinstance(space, MultiDiscrete) else "the action"
            raise InvalidArgument.at(path, f"allows nothing for {what} in row {row}; at least one entry must be 1")
    return mask


def _choice_starts(space: Leaf) -> npt.NDArray[np.intp] | None:
    if isinstance(space, Discrete):
        return np.zeros(1, np.intp)
    if isinstance(space, MultiDiscrete):
        return np.concatenate([[0], np.cumsum(space.nvec)[:-1]]).astype(np.intp)
    return None


def override(space: Leaf, action: Array, dictated: Value, batched: bool, path: str) -> Array:
    """The action (rows, *shape), replaced where the environment dictates one; NaN, and None, dictate nothing."""
    if dictated is None:
        return action
    array = with_batch(dictated, tuple(space.shape), len(action), batched, path)
    chosen = ~np.isnan(array) if array.dtype.kind == "f" else np.ones(array.shape, np.bool_)
    filled = np.where(chosen, array, action)
    if array.dtype.kind == "f" and not isinstance(space, Box):
        if bool((filled != np.floor(filled)).any()):
            raise InvalidArgument.at(path, f"holds fractions, but a {space.type} action is made of integers")
        filled = filled.astype(np.int64)
    return check_leaf(space, filled, path, True).astype(action.dtype)
