"""Gymnasium's spaces as a manifest has them, and their values as a network's inputs.

Knows: gymnasium. Does not know: which library's policy they belong to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces


def describe(space: spaces.Space[Any]) -> dict[str, Any]:
    """The space in the manifest's words; ValueError for one that a bundle cannot have."""
    match space:
        case spaces.Box():
            return {
                "type": "Box",
                "shape": list(space.shape),
                "dtype": space.dtype.name,
                "low": _bound(space.low),
                "high": _bound(space.high),
            }
        case spaces.Discrete():
            return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
        case spaces.MultiDiscrete() if space.nvec.ndim == 1:
            return {"type": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
        case spaces.MultiBinary():
            return {"type": "MultiBinary", "shape": list(space.shape)}
        case spaces.Dict():
            return {"type": "Dict", "spaces": {key: describe(child) for key, child in space.spaces.items()}}
        case spaces.Tuple():
            return {"type": "Tuple", "spaces": [describe(child) for child in space.spaces]}
        case _:
            raise ValueError(f"a bundle cannot have the space {space}")


def _bound(bound: Any) -> Any:
    """One number where all are the same, else a list; None where infinite."""
    numbers = [float(number) if np.isfinite(number) else None for number in np.asarray(bound, np.float64).ravel()]
    return numbers[0] if len(set(numbers)) == 1 else numbers


def leaves(space: spaces.Space[Any], name: str = "obs") -> Iterator[tuple[str, spaces.Space[Any]]]:
    """The leaves with the names of their network inputs, in the manifest's order."""
    if isinstance(space, spaces.Dict):
        for key, child in space.spaces.items():
            yield from leaves(child, f"{name}.{key}")
    elif isinstance(space, spaces.Tuple):
        for position, child in enumerate(space.spaces):
            yield from leaves(child, f"{name}.{position}")
    else:
        yield name, space


def rebuild(space: spaces.Space[Any], flat: Iterator[Any]) -> Any:
    """The value whose leaves, in order, are `flat`."""
    if isinstance(space, spaces.Dict):
        return {key: rebuild(child, flat) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(rebuild(child, flat) for child in space.spaces)
    return next(flat)


def sample_rows(space: spaces.Space[Any], rows: int) -> list[Any]:
    """Random values of each leaf, in order: (rows, *shape) each."""
    found = []
    for _, leaf in leaves(space):
        leaf.seed(0)
        array = np.stack([np.asarray(leaf.sample()) for _ in range(rows)])
        found.append(array.astype(np.float32) if array.dtype.kind == "f" else array)
    return found
