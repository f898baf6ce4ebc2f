"""Value messages <-> numpy arrays, alone or by key and position, nested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradwire.server.codec.shared import SharedReads
from gradwire.server.codec.tensor import put_array, tensor_to_array
from gradwire.server.engines.acting import Value
from gradwire.server.errors import InvalidArgument
from gradwire.v1 import inference_pb2

MAX_DEPTH = 16
# Types of numbers that tensors on the wire do not have, in the narrowest one that holds them.
_WIDER = {np.dtype("i1"): "<i4", np.dtype("<i2"): "<i4", np.dtype("<u2"): "<i4", np.dtype("<u4"): "<i8"}


def decode_value(
    message: inference_pb2.Value, path: str, shared: SharedReads | None = None, *, depth: int = 0
) -> Value:
    """An array (a read-only view of the message's bytes), a dict or a tuple. Raises InvalidArgument at `path`.

    Arrays in shared memory are filled by `shared.read()`; None refuses such.
    """
    if depth > MAX_DEPTH:
        raise InvalidArgument.at(path, f"has values in each other more than {MAX_DEPTH} deep")
    match message.WhichOneof("form"):
        case "tensor":
            return tensor_to_array(message.tensor, path, shared)
        case "map":
            entries = message.map.entries.items()
            return {key: decode_value(entry, f"{path}.{key}", shared, depth=depth + 1) for key, entry in entries}
        case "list":
            items = enumerate(message.list.items)
            return tuple(decode_value(item, f"{path}[{i}]", shared, depth=depth + 1) for i, item in items)
        case _:
            raise InvalidArgument.at(path, "is empty; give tensor, map or list")


def decode_optional(request: Any, name: str, shared: SharedReads | None = None) -> Value:
    """The value of a request's field; None where it is not set."""
    return decode_value(getattr(request, name), name, shared) if request.HasField(name) else None


def put_value(message: inference_pb2.Value, value: Value) -> None:
    """Writes a value into a message, in place. Keys without a value are left out."""
    if isinstance(value, Mapping):
        message.map.SetInParent()
        for key, item in value.items():
            if item is not None:
                put_value(message.map.entries[key], item)
    elif isinstance(value, tuple | list):
        message.list.SetInParent()
        for item in value:
            put_value(message.list.items.add(), item)
    else:
        array = np.asarray(value)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        wider = _WIDER.get(array.dtype)
        put_array(message.tensor, array if wider is None else array.astype(wider))
