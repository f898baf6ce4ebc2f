"""Requests with a large tensor, encoded with one copy of its elements.

protobuf copies a tensor's megabytes into memory of its own, encodes them into more, and that into bytes; the pages of
so much fresh memory cost more than the copying. A message's fields may stand in any order, and parts of it that are
encoded one by one may be joined (https://protobuf.dev/programming-guides/encoding): so the elements stand at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from google.protobuf.message import Message

from gradwire.client._convert.inference import put_value
from gradwire.client._convert.tensors import LARGE_BYTES, Array, Placer, elements, is_torch, wire_type
from gradwire.client._core.rpc import Encoded, Request
from gradwire.client._core.varint import varint
from gradwire.v1 import inference_pb2, tensor_pb2

_BYTES = 2  # wire type of what has a length
_DATA = tensor_pb2.Tensor.DESCRIPTOR.fields_by_name["data"].number
_TENSOR = inference_pb2.Value.DESCRIPTOR.fields_by_name["tensor"].number


def with_value(request: Request, field: str, value: Any, placer: Placer) -> Request | Encoded:
    """`request` with its Value `field`: itself, or encoded where that is one large array that `placer` does not take.

    The elements are copied here: the caller may change the array at once.
    """
    target: inference_pb2.Value = getattr(request, field)
    if not (isinstance(value, np.ndarray) or is_torch(value)) or value.nbytes < LARGE_BYTES:
        put_value(target, value, field, placer)
        return request
    array, dtype = elements(value, field)
    return request if placer.put(target.tensor, array, dtype) else _encoded(request, field, array, dtype)


def _encoded(request: Message, field: str, array: Array, dtype: str) -> Encoded:
    flat: Any = array.reshape(-1)
    data = memoryview(flat).cast("B")
    shape = tensor_pb2.Tensor(dtype=wire_type(dtype), shape=array.shape).SerializeToString()
    inner = shape + _head(_DATA, len(data))
    outer = _head(_TENSOR, len(inner) + len(data))
    number = request.DESCRIPTOR.fields_by_name[field].number
    size = len(outer) + len(inner) + len(data)
    return Encoded(b"".join((request.SerializeToString(), _head(number, size), outer, inner, data)))


def _head(number: int, size: int) -> bytes:
    """What stands before `size` bytes of a field."""
    return varint(number << 3 | _BYTES) + varint(size)
