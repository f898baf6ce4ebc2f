"""The data that policies and supervised models take and give, by the document's names.

Knows: the aliases, and what counts as an array. Does not know: the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

RLData: TypeAlias = "npt.NDArray[Any] | dict[str, RLData] | tuple[RLData, ...] | None"
"""An array; or arrays by key (dict spaces, agents) or by position (tuple spaces), nested; or nothing."""
SerializedRLData: TypeAlias = "str | dict[str, SerializedRLData] | tuple[SerializedRLData, ...] | None"
"""The same with each array as base64 of a .npy file."""


def as_value(value: Any, where: str) -> Any:
    """What may be sent: lists that hold arrays, dicts or tuples are read as tuples, as in `serialize`; other lists
    are arrays. TypeError names an entry that is None."""
    if isinstance(value, Mapping):
        return {key: as_value(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, tuple) or (isinstance(value, list) and any(map(_is_whole, value))):
        return tuple(as_value(item, f"{where}[{number}]") for number, item in enumerate(value))
    if value is None:
        raise TypeError(f"{where} is None; give an array")
    return value


def without_nothing(value: Any) -> Any:
    """A dict without its None entries (agents that nothing is said of); None when none is left."""
    if not isinstance(value, Mapping):
        return value
    return {key: item for key, item in value.items() if item is not None} or None


def _is_whole(item: Any) -> bool:
    # A torch tensor has `detach`; a numpy scalar is an element, not an array.
    return item is None or isinstance(item, Mapping | tuple | np.ndarray) or hasattr(item, "detach")
