"""Between configuration dataclasses (or mappings) and messages with the same field names.

Knows: walking both by name. Does not know: any particular message; ones that need more have modules of
their own. A key that the message lacks is a TypeError that names the nearest one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct

from gradwire.client._convert.enums import enum_number
from gradwire.client._convert.nearest import unknown_name
from gradwire.client._convert.structs import struct_from_proto, struct_to_proto
from gradwire.client._convert.wanted import wanted
from gradwire.client._core.arguments import given

C = TypeVar("C")
M = TypeVar("M", bound=Message)
Reader = Callable[[Any], Any]


def as_mapping(value: object, where: str, kind: str = "") -> Mapping[str, Any]:
    """A dataclass's fields, or the mapping itself. TypeError, which names the dataclass `kind`, for anything else."""
    if isinstance(value, Mapping):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise TypeError(f"{where} is {given(value)}; give a dict{' or an object of class ' if kind else ''}{kind}")


def fill(message: Message, values: object, where: str) -> None:
    """Writes `values` into `message`. None leaves a field absent. `where` names it in errors."""
    known = message.DESCRIPTOR.fields_by_name
    for key, value in as_mapping(values, where, message.DESCRIPTOR.name).items():
        if key not in known:
            raise TypeError(unknown_name(f"{where} key", key, known, _parts(message)))
        if value is not None:
            put_field(message, key, value, f"{where}.{key}")


def put(message: M, **values: object) -> M:
    """The message with a call's own arguments written in. None leaves a field absent. Errors name the one."""
    for key, value in values.items():
        if value is not None:
            put_field(message, key, value, key)
    return message


def made(kind: type[M], **values: object) -> M:
    """As `put(kind(), ...)`, in a fifth of the time where all is right: for calls of which microseconds count."""
    try:
        return kind(**values)
    except (TypeError, ValueError, OverflowError):
        return put(kind(), **values)


def _parts(message: Message) -> dict[str, Collection[str]]:
    """Fields that are messages of known fields, with those."""
    parts: dict[str, Collection[str]] = {}
    for name, field in message.DESCRIPTOR.fields_by_name.items():
        inner = field.message_type
        if field.has_presence and inner is not None and inner.full_name != Struct.DESCRIPTOR.full_name:
            parts[name] = inner.fields_by_name.keys()
    return parts


def put_field(message: Message, key: str, value: Any, where: str) -> None:
    """Writes one field. TypeError or ValueError says what `where` was given and what it takes."""
    current = getattr(message, key)
    field = message.DESCRIPTOR.fields_by_name[key]
    if isinstance(current, Struct):
        current.CopyFrom(struct_to_proto(as_mapping(value, where), where))
        return
    if isinstance(current, Message):
        current.SetInParent()
        fill(current, value, where)
        return
    several = hasattr(current, "extend")
    try:
        if several and field.enum_type is not None:
            current.extend([_enum(field.enum_type, item, where) for item in _items(value)])
        elif several:
            current.extend(_items(value))
        elif hasattr(current, "items"):
            current.update({_scalar(k): _scalar(v) for k, v in value.items()})
        elif field.enum_type is not None:
            setattr(message, key, _enum(field.enum_type, value, where))
        else:
            setattr(message, key, _scalar(value))
    except UnicodeError as error:
        raise ValueError(f"{where}: {error}") from error
    except (TypeError, AttributeError, RuntimeError) as error:  # of torch's is the last
        raise TypeError(f"{where} is {given(value)}; it takes {wanted(field, several)}") from error
    except (ValueError, OverflowError) as error:
        if field.enum_type is not None:
            raise
        raise ValueError(f"{where} is {given(value)}; it takes {wanted(field, several, bounds=True)}") from error


def _enum(enum: Any, value: object, where: str) -> int:
    try:
        return enum_number(enum, value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _items(value: Any) -> list[Any]:
    # A lone string is one item, not a list of characters; bytes and a dict would be one of numbers and of keys.
    if isinstance(value, bytes | Mapping):
        raise TypeError
    return [value] if isinstance(value, str) else [_scalar(item) for item in value]


def _scalar(value: Any) -> Any:
    # numpy's numbers are not all taken by protobuf.
    return value.item() if hasattr(value, "item") else value


def read(kind: type[C], message: Message, readers: Mapping[str, Reader] | None = None) -> C:
    """A `kind` from the fields of `message`; absent ones are None. `readers` read the special ones."""
    return kind(**{name: _get(message, name, readers or {}) for name in _names(kind)})


def _names(kind: type) -> Iterable[str]:
    return [field.name for field in fields(kind)]


def _get(message: Message, name: str, readers: Mapping[str, Reader]) -> Any:
    value = getattr(message, name)
    descriptor = message.DESCRIPTOR.fields_by_name[name]
    if descriptor.has_presence and not message.HasField(name):
        return None
    if name in readers:
        return readers[name](value)
    if isinstance(value, Struct):
        return struct_from_proto(value)
    if hasattr(value, "extend"):
        return tuple(value) or None
    if hasattr(value, "items"):
        return dict(value) or None
    return None if value == "" else value
