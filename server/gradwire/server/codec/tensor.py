"""Tensor messages <-> numpy arrays. Lengths are checked before anything is allocated.

numpy has no bfloat16: such tensors are read as float32 and never made.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from gradwire.server.codec.shared import SharedReads, refuse
from gradwire.server.errors import InvalidArgument
from gradwire.v1 import tensor_pb2

Array = npt.NDArray[Any]

_NUMPY: dict[int, np.dtype[Any]] = {
    tensor_pb2.DATA_TYPE_BOOL: np.dtype("?"),
    tensor_pb2.DATA_TYPE_UINT8: np.dtype("u1"),
    tensor_pb2.DATA_TYPE_INT32: np.dtype("<i4"),
    tensor_pb2.DATA_TYPE_INT64: np.dtype("<i8"),
    tensor_pb2.DATA_TYPE_FLOAT16: np.dtype("<f2"),
    tensor_pb2.DATA_TYPE_BFLOAT16: np.dtype("<u2"),  # bits; widened after reading
    tensor_pb2.DATA_TYPE_FLOAT32: np.dtype("<f4"),
    tensor_pb2.DATA_TYPE_FLOAT64: np.dtype("<f8"),
}
_PROTO = {dtype: code for code, dtype in _NUMPY.items() if code != tensor_pb2.DATA_TYPE_BFLOAT16}
_MAX_ELEMENTS = 2**40  # far above any message; a product beyond it is a mistake or an attack
_MAX_DIMENSIONS = 8


def dtype_name(code: int) -> str:
    """`DATA_TYPE_FLOAT32` as "float32"."""
    return tensor_pb2.DataType.Name(code).removeprefix("DATA_TYPE_").lower()


def _dtype(code: int, path: str) -> np.dtype[Any]:
    if code not in _NUMPY:
        known = ", ".join(dtype_name(c) for c in _NUMPY)
        raise InvalidArgument.at(f"{path}.dtype", f"is not given or not known; give one of {known}")
    return _NUMPY[code]


def _read(data: bytes, code: int, dtype: np.dtype[Any], path: str) -> Array:
    if code == tensor_pb2.DATA_TYPE_BOOL and data.strip(b"\0\1"):
        raise _not_bool(path)
    array = np.frombuffer(data, dtype=dtype)
    if code == tensor_pb2.DATA_TYPE_BFLOAT16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def _not_bool(path: str) -> InvalidArgument:
    # numpy trusts the bytes of a bool: with any other value, counts and masks go wrong.
    return InvalidArgument.at(path, "holds a bool that is neither 0 nor 1")


def tensor_to_array(tensor: tensor_pb2.Tensor, path: str, shared: SharedReads | None = None) -> Array:
    """The array of a tensor: a read-only view of its bytes, except for bfloat16 (float32 copy).

    One in shared memory is filled by `shared.read()`; None refuses such. Raises InvalidArgument at `path` when dtype,
    shape and bytes do not agree.
    """
    dtype = _dtype(tensor.dtype, path)
    shape = _shape(tensor, path)
    expected = math.prod(shape) * dtype.itemsize
    storage = tensor.WhichOneof("storage")
    if storage == "shared_memory":
        return _shared(tensor, path, shape, dtype, expected, shared)
    if len(tensor.data) != expected:
        raise InvalidArgument.at(
            f"{path}.data",
            f"holds {len(tensor.data)} bytes, but shape {list(shape)} of {dtype_name(tensor.dtype)} takes {expected}",
        )
    return _read(tensor.data, tensor.dtype, dtype, f"{path}.data").reshape(shape)


def _shape(tensor: tensor_pb2.Tensor, path: str) -> tuple[int, ...]:
    shape = tuple(tensor.shape)
    if len(shape) > _MAX_DIMENSIONS:
        raise InvalidArgument.at(f"{path}.shape", f"has {len(shape)} dimensions; at most {_MAX_DIMENSIONS} are taken")
    if shape and min(shape) < 0:
        raise InvalidArgument.at(f"{path}.shape", f"{list(shape)} has a negative dimension; each must be 0 or more")
    # Python's integers do not overflow, so the product is exact and only has to be compared. Zeros are left
    # out of it: numpy refuses [0, 2^62], too.
    elements = math.prod(shape) or math.prod(dim or 1 for dim in shape)
    if elements > _MAX_ELEMENTS:
        raise InvalidArgument.at(f"{path}.shape", f"{list(shape)} has {elements} elements, more than any message holds")
    return shape


def _shared(
    tensor: tensor_pb2.Tensor,
    path: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    expected: int,
    shared: SharedReads | None,
) -> Array:
    memory = tensor.shared_memory
    if shared is None:
        raise refuse(path)
    where = f"{path}.shared_memory"
    if memory.length != expected:
        raise InvalidArgument.at(
            f"{where}.length",
            f"is {memory.length}, but shape {list(shape)} of {dtype_name(tensor.dtype)} takes {expected} bytes",
        )
    raw = shared.take(memory, where)  # a copy: the caller may write to its memory again as soon as it has an answer
    if tensor.dtype == tensor_pb2.DATA_TYPE_BFLOAT16:
        wide = np.empty(shape, np.uint32)
        shared.then(lambda: np.copyto(wide, raw.view(dtype).reshape(shape).astype(np.uint32) << 16))
        return wide.view(np.float32)
    if tensor.dtype == tensor_pb2.DATA_TYPE_BOOL:

        def check() -> None:
            if raw.size and raw.max() > 1:
                raise _not_bool(where)

        shared.then(check)
    return raw.view(dtype).reshape(shape)


def put_array(message: tensor_pb2.Tensor, array: Array) -> None:
    """Writes the array's bytes into a tensor, in place."""
    dtype = array.dtype
    if dtype not in _PROTO:
        dtype = dtype.newbyteorder("<")
    message.dtype = _PROTO[dtype]  # type: ignore[assignment]
    message.shape.extend(array.shape)
    message.data = array.astype(dtype, copy=False).tobytes()  # row-major, however the array lies in memory


def array_to_tensor(array: Array) -> tensor_pb2.Tensor:
    """A tensor of the array's bytes."""
    message = tensor_pb2.Tensor()
    put_array(message, array)
    return message


def ragged_to_array(ragged: tensor_pb2.RaggedTensor, path: str) -> tuple[Array, npt.NDArray[np.int64]]:
    """The elements and row offsets (int64 [R+1]) of a ragged tensor, checked against each other."""
    dtype = _dtype(ragged.dtype, path)
    if len(ragged.data) % dtype.itemsize:
        raise InvalidArgument.at(
            f"{path}.data",
            f"holds {len(ragged.data)} bytes, which is no whole number of {dtype_name(ragged.dtype)} "
            f"({dtype.itemsize} bytes each)",
        )
    if len(ragged.row_offsets) < 16 or len(ragged.row_offsets) % 8:
        raise InvalidArgument.at(
            f"{path}.row_offsets", f"holds {len(ragged.row_offsets)} bytes; it takes R + 1 int64 for R >= 1 rows"
        )
    values = _read(ragged.data, ragged.dtype, dtype, f"{path}.data")
    offsets = np.frombuffer(ragged.row_offsets, dtype="<i8").astype(np.int64, copy=False)
    if offsets[0] != 0 or offsets[-1] != len(values) or bool(np.any(offsets[1:] < offsets[:-1])):
        raise InvalidArgument.at(
            f"{path}.row_offsets",
            f"must begin with 0, never fall, and end with the number of elements ({len(values)}); "
            f"it begins with {offsets[0]} and ends with {offsets[-1]}",
        )
    return values, offsets


def array_to_ragged(values: Array, offsets: npt.NDArray[np.int64]) -> tensor_pb2.RaggedTensor:
    """A ragged tensor of rows laid end to end."""
    dense = array_to_tensor(values)
    return tensor_pb2.RaggedTensor(dtype=dense.dtype, data=dense.data, row_offsets=offsets.astype("<i8").tobytes())


def token_ids_from_bytes(data: bytes, path: str) -> npt.NDArray[np.int32]:
    """int32 token ids from their bytes."""
    if len(data) % 4:
        raise InvalidArgument.at(path, f"holds {len(data)} bytes; int32 token ids take 4 each")
    return np.frombuffer(data, dtype="<i4").astype(np.int32, copy=False)
