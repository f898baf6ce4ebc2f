"""Between google.protobuf.Struct and plain dicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.struct_pb2 import Struct, Value


def struct_to_proto(values: Mapping[str, Any], where: str) -> Struct:
    """A Struct; ValueError names the key that JSON cannot hold."""
    struct = Struct()
    for key, value in values.items():
        try:
            struct.update({str(key): _plain(value)})
        except (TypeError, ValueError) as error:
            kind = type(value).__name__
            raise ValueError(
                f"{where}.{key}: a {kind} has no place in JSON; use numbers, text, lists or dicts"
            ) from error
    return struct


def struct_from_proto(struct: Struct) -> dict[str, Any]:
    """A dict; whole numbers become ints, which Struct does not tell from floats."""
    return {key: _read(value) for key, value in struct.fields.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _read(value: Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return struct_from_proto(value.struct_value)
    if kind == "list_value":
        return [_read(item) for item in value.list_value.values]
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() else number
    return None if kind in (None, "null_value") else getattr(value, kind)
