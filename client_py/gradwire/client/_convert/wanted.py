"""What a field of a message takes, in words: Python's own say neither which value was wrong nor what would be right."""

from __future__ import annotations

from typing import Any

# By the descriptor's cpp_type: one value, and the least and greatest of those that have bounds.
_ONE = {
    1: "a whole number",
    2: "a whole number",
    3: "a whole number",
    4: "a whole number",
    5: "a number",
    6: "a number",
    7: "True or False",
    8: "a word",
    9: "text",
}
_BOUNDS = {1: (-(2**31), 2**31 - 1), 2: (-(2**63), 2**63 - 1), 3: (0, 2**32 - 1), 4: (0, 2**64 - 1)}
_BYTES = 12  # of the descriptor's type


def wanted(field: Any, several: bool = False, *, bounds: bool = False) -> str:
    """What a field takes, by its descriptor, which may hold `several`; with the bounds of whole numbers."""
    if field.message_type is not None:  # the one kind that is filled with values and has one: a map
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return f"a dict from {_one(key, bounds)} to {_one(value, bounds)}"
    one = _one(field, bounds)
    if not several:
        return one
    return f"{one} or a list of such" if one == "text" else f"a list, each of it {one}"


def _one(field: Any, bounds: bool) -> str:
    if field.type == _BYTES:
        return "bytes"
    kind = field.cpp_type
    return f"{_ONE[kind]} of {_BOUNDS[kind][0]} to {_BOUNDS[kind][1]}" if bounds and kind in _BOUNDS else _ONE[kind]
