"""Between StrEnums and protobuf enums: `FinishReason.STOP` is FINISH_REASON_STOP, by rule."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, TypeVar

from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from gradwire.client._convert.nearest import unknown_name

E = TypeVar("E", bound=StrEnum)


def enum_from_proto(kind: type[E], wrapper: EnumTypeWrapper, number: int) -> E:
    """The member for `number`; UNSPECIFIED for one that this client does not know."""
    value = wrapper.DESCRIPTOR.values_by_number.get(number)
    word = value.name.removeprefix(_prefix(wrapper.DESCRIPTOR.name)).lower() if value else ""
    return kind(word) if word in set(kind) else kind("unspecified")


def enum_to_proto(wrapper: EnumTypeWrapper, value: str | None, where: str) -> str:
    """The protobuf name for a member or its word; None is UNSPECIFIED. ValueError names the nearest."""
    try:
        number = enum_number(wrapper.DESCRIPTOR, "unspecified" if value is None else value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return str(wrapper.DESCRIPTOR.values_by_number[number].name)


def enum_number(enum: Any, value: object) -> int:
    """Number of a member or its word in the enum of a descriptor. ValueError names the nearest."""
    prefix = _prefix(enum.name)
    numbers: dict[str, int] = {v.name.removeprefix(prefix).lower(): v.number for v in enum.values}
    if str(value) not in numbers:
        raise ValueError(unknown_name("value", value, numbers.keys() - {"unspecified"}))  # that is what None is for
    return numbers[str(value)]


def _prefix(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper() + "_"
