"""Spaces of observations and actions, with gymnasium's names and meaning, as they stand in a manifest.

Knows: their schema, and what a leaf's arrays look like. Does not know gymnasium, nor how values are checked (`values`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, model_validator

Array = npt.NDArray[Any]
MAX_ELEMENTS = 2**24  # of one leaf: a 4096 x 4096 image
MAX_ROW_ELEMENTS = 2**25  # of all inputs of a network, for one row
MAX_DEPTH = 8  # of dict and tuple spaces in each other

# How far a real number may lie outside its box, of the box's width: float noise of cos and of casts.
_TOLERANCE = 1e-5

Dimension = Annotated[int, Field(ge=1, le=MAX_ELEMENTS)]
Shape = Annotated[tuple[Dimension, ...], Field(max_length=7)]
Bound = float | None  # None: unbounded; JSON has no infinity
Key = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")]


class Strict(BaseModel):
    """Nothing unknown is read over, nothing is coerced, nothing changes later."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def elements(shape: tuple[int, ...]) -> int:
    """Elements of an array of this shape; ValueError beyond the limit."""
    count = math.prod(shape)
    if count > MAX_ELEMENTS:
        raise ValueError(f"shape {list(shape)} has {count} elements; at most {MAX_ELEMENTS} are taken")
    return count


class Box(Strict):
    """Real or integer numbers in [low, high], element by element; an image is a uint8 box in [0, 255]."""

    type: Literal["Box"] = "Box"
    shape: Shape
    dtype: Literal["float16", "float32", "float64", "uint8", "int8", "int16", "int32", "int64"] = "float32"
    low: Bound | tuple[Bound, ...] = None
    """One bound of all elements, or one an element in row-major order. None: none."""
    high: Bound | tuple[Bound, ...] = None

    @model_validator(mode="after")
    def _bounds_fit(self) -> Box:
        count = elements(self.shape)
        for name, bound in (("low", self.low), ("high", self.high)):
            if isinstance(bound, tuple) and len(bound) != count:
                raise ValueError(f"{name} has {len(bound)} numbers, but shape {list(self.shape)} has {count} elements")
        if bool(np.any(self.low_array > self.high_array)):
            raise ValueError("low is above high")
        return self

    @cached_property
    def low_array(self) -> Array:
        """float64, broadcastable to `shape`; -inf where unbounded."""
        return _bound(self.low, -math.inf, self.shape)

    @cached_property
    def high_array(self) -> Array:
        """float64, broadcastable to `shape`; inf where unbounded."""
        return _bound(self.high, math.inf, self.shape)

    @cached_property
    def numpy_dtype(self) -> np.dtype[Any]:
        """`dtype`, as numpy has it."""
        return np.dtype(self.dtype)

    @cached_property
    def limits(self) -> tuple[Array, Array]:
        """The least and the greatest number that is taken: of integers within their dtype, of real ones with slack."""
        low, high = self.low_array, self.high_array
        if self.numpy_dtype.kind in "iu":
            of_type = np.iinfo(self.numpy_dtype)
            return np.maximum(low, of_type.min), np.minimum(high, of_type.max)
        slack = _TOLERANCE * np.maximum(1.0, np.maximum(_magnitude(low), _magnitude(high)))
        return low - slack, high + slack

    @cached_property
    def limited(self) -> bool:
        """Some number of its dtype is outside the limits."""
        low, high = self.limits
        if self.numpy_dtype.kind in "iu":
            of_type = np.iinfo(self.numpy_dtype)
            return bool(np.any(low > of_type.min) or np.any(high < of_type.max))
        return not bool(np.all(np.isinf(low)) and np.all(np.isinf(high)))

    @property
    def bounded(self) -> bool:
        """Every element has both bounds."""
        return bool(np.all(np.isfinite(self.low_array)) and np.all(np.isfinite(self.high_array)))


def _magnitude(bound: Array) -> Array:
    return np.where(np.isfinite(bound), np.abs(bound), 0.0)


def _bound(bound: Bound | tuple[Bound, ...], unbounded: float, shape: tuple[int, ...]) -> Array:
    if isinstance(bound, tuple):
        return np.array([unbounded if b is None else b for b in bound], np.float64).reshape(shape)
    return np.array(unbounded if bound is None else bound, np.float64)


class Discrete(Strict):
    """One of the integers start .. start + n - 1."""

    type: Literal["Discrete"] = "Discrete"
    n: Annotated[int, Field(ge=1, le=2**20)]
    start: Annotated[int, Field(ge=-(2**62), le=2**62)] = 0
    shape: tuple[()] = ()


class MultiDiscrete(Strict):
    """Several integers, the i-th in start[i] .. start[i] + nvec[i] - 1."""

    type: Literal["MultiDiscrete"] = "MultiDiscrete"
    nvec: Annotated[tuple[Annotated[int, Field(ge=1, le=2**20)], ...], Field(min_length=1, max_length=4096)]
    start: tuple[Annotated[int, Field(ge=-(2**62), le=2**62)], ...] = ()
    """Default: zeros."""

    @model_validator(mode="after")
    def _starts_fit(self) -> MultiDiscrete:
        if self.start and len(self.start) != len(self.nvec):
            raise ValueError(f"start has {len(self.start)} numbers, but nvec {len(self.nvec)}")
        if sum(self.nvec) > 2**20:
            raise ValueError(f"nvec adds up to {sum(self.nvec)}; at most {2**20} are taken")
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """(len(nvec),)"""
        return (len(self.nvec),)

    @cached_property
    def start_array(self) -> npt.NDArray[np.int64]:
        """int64 (len(nvec),)"""
        return np.array(self.start or (0,) * len(self.nvec), np.int64)


class MultiBinary(Strict):
    """An array of 0 and 1."""

    type: Literal["MultiBinary"] = "MultiBinary"
    shape: Annotated[tuple[Dimension, ...], Field(min_length=1, max_length=7)]

    @model_validator(mode="after")
    def _fits(self) -> MultiBinary:
        elements(self.shape)
        return self


class Dict(Strict):
    """Spaces by key."""

    type: Literal["Dict"] = "Dict"
    spaces: Annotated[dict[Key, Space], Field(min_length=1, max_length=256)]


class Tuple(Strict):
    """Spaces by position."""

    type: Literal["Tuple"] = "Tuple"
    spaces: Annotated[tuple[Space, ...], Field(min_length=1, max_length=256)]


Leaf = Box | Discrete | MultiDiscrete | MultiBinary
Space = Annotated[Box | Discrete | MultiDiscrete | MultiBinary | Dict | Tuple, Field(discriminator="type")]
ActionSpace = Annotated[Leaf, Field(discriminator="type")]
Dict.model_rebuild()
Tuple.model_rebuild()


def leaves(space: Space, name: str) -> Iterator[tuple[str, Leaf]]:
    """The leaves with the names of their network inputs: `obs`, `obs.KEY`, `obs.0.KEY`, in the space's order."""
    if isinstance(space, Dict):
        for key, child in space.spaces.items():
            yield from leaves(child, f"{name}.{key}")
    elif isinstance(space, Tuple):
        for position, child in enumerate(space.spaces):
            yield from leaves(child, f"{name}.{position}")
    else:
        yield name, space


def depth(space: Space) -> int:
    """1 for a leaf."""
    if isinstance(space, Dict):
        return 1 + max(map(depth, space.spaces.values()))
    return 1 + max(map(depth, space.spaces)) if isinstance(space, Tuple) else 1
