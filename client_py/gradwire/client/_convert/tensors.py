"""Between arrays and tensor messages: dtype, shape and little-endian row-major bytes.

Knows: numpy, and torch tensors by their looks: torch is never imported, only found already imported.
numpy has no bfloat16, so it travels as its 16 bits and comes back as float32, which holds it exactly.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from gradwire.client._core.arguments import given
from gradwire.v1 import tensor_pb2 as pb

Array = npt.NDArray[Any]
LARGE_BYTES = 256 * 1024
"""Of a tensor. Smaller ones go in their message as it is: there is nothing to gain by shared memory, nor by encoding it
apart."""

_NUMPY: dict[str, np.dtype[Any]] = {
    "bool": np.dtype("?"),
    "uint8": np.dtype("u1"),
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
    "float16": np.dtype("<f2"),
    "bfloat16": np.dtype("<u2"),
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
}
# Looked up for each tensor: a dtype's own `name` takes longer than all else that is done with a small one.
_NAMES = {dtype: name for name, dtype in _NUMPY.items() if name != "bfloat16"}
_WIRE_TYPES: dict[str, Any] = {name: pb.DataType.Value(f"DATA_TYPE_{name.upper()}") for name in _NUMPY}
_BY_WIRE_TYPE = {code: (name, _NUMPY[name]) for name, code in _WIRE_TYPES.items()}


class Elements(NamedTuple):
    """A C-contiguous little-endian array and the name of its type; bfloat16 as uint16 bits."""

    array: Array
    dtype: str


def elements(value: Any, where: str) -> Elements:
    """`value` (numpy, torch, list or number) as bytes can be taken from it. TypeError names what fits."""
    if is_torch(value):
        value = value.detach().cpu().contiguous()
        if str(value.dtype) == "torch.bfloat16":
            return Elements(value.view(sys.modules["torch"].int16).numpy().view(np.uint16), "bfloat16")
        value = value.numpy()
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where} is {given(value)}, which is no array: {error}") from error
    name = _NAMES.get(array.dtype) or array.dtype.name
    if name == "bfloat16":
        return Elements(np.ascontiguousarray(array).view(np.uint16), name)
    if name not in _NUMPY:
        array = _widen(array, where)
        name = _NAMES[array.dtype]
    # ascontiguousarray makes a scalar one-dimensional; reshape undoes that.
    return Elements(np.ascontiguousarray(array, _NUMPY[name]).reshape(array.shape), name)


def is_torch(value: object) -> bool:
    """It is a torch tensor, said without importing torch."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach")


def _widen(array: Array, where: str) -> Array:
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind in "iu" and size <= 4:
        return array.astype(np.int32 if size < 4 or kind == "i" else np.int64)
    if kind == "u" and (array.size == 0 or array.max() <= np.iinfo(np.int64).max):
        return array.astype(np.int64)
    raise TypeError(
        f"{where} holds {array.dtype}, which has no place on the wire; use one of {', '.join(_NUMPY)} "
        "(rows of differing lengths go as a list of one-dimensional arrays)"
    )


def as_float32(value: Any, where: str) -> npt.NDArray[np.float32]:
    """float32 of any array-like."""
    array, dtype = elements(value, where)
    return _from_bfloat16(array) if dtype == "bfloat16" else array.astype(np.float32, copy=False)


class Placer(Protocol):
    """Where large tensors go instead of their message."""

    def put(self, message: pb.Tensor, array: Array, dtype: str) -> bool:
        """Whether it took what `elements` gave, and wrote into `message` where it is."""
        ...


def put_tensor(message: pb.Tensor, value: Any, where: str, placer: Placer | None = None) -> None:
    """Writes the elements into a message, in place: one that is given to another's constructor is copied with them."""
    array, dtype = elements(value, where)
    if placer is not None and placer.put(message, array, dtype):
        return
    message.dtype = wire_type(dtype)
    message.shape.extend(array.shape)
    message.data = array.tobytes()


def tensor_from_proto(tensor: pb.Tensor) -> Array:
    """A new array; bfloat16 as float32. ValueError when shape and bytes do not agree."""
    return _array(tensor.data, tensor.dtype).reshape(tuple(tensor.shape))


def put_rows(
    message: pb.BatchTensor, array: Array, offsets: npt.NDArray[np.int64] | None, placer: Placer | None = None
) -> None:
    """Writes a column: dense [B, S], or with `offsets` ([B + 1]) the flat elements of ragged rows."""
    if offsets is None:
        put_tensor(message.dense, array, "column", placer)
        return
    flat, dtype = elements(array, "column")
    message.ragged.dtype = wire_type(dtype)
    message.ragged.data = flat.tobytes()
    message.ragged.row_offsets = offsets.astype("<i8").tobytes()


def rows_from_proto(column: pb.BatchTensor) -> Array | list[Array]:
    """[B, S], or a list of B arrays."""
    if column.WhichOneof("layout") == "ragged":
        ragged = column.ragged
        offsets = np.frombuffer(ragged.row_offsets, "<i8")
        return np.split(_array(ragged.data, ragged.dtype), offsets[1:-1])
    return tensor_from_proto(column.dense)


def int32_from_bytes(data: bytes) -> npt.NDArray[np.int32]:
    """int32 array of raw bytes; a copy, so that it can be written to."""
    return np.frombuffer(data, "<i4").astype(np.int32)


def float32_from_bytes(data: bytes) -> npt.NDArray[np.float32]:
    """float32 array of raw bytes; a copy, so that it can be written to."""
    return np.frombuffer(data, "<f4").astype(np.float32)


def token_bytes(ids: Sequence[int] | Array, where: str) -> bytes:
    """int32 bytes of token ids. TypeError or ValueError when they are not one row of such."""
    array = elements(ids, where).array
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"{where}: token ids are one row of integers, not {array.dtype} of shape {list(array.shape)}")
    if array.size and (array.min() < 0 or array.max() > np.iinfo(np.int32).max):
        raise ValueError(f"{where}: token ids lie between 0 and {np.iinfo(np.int32).max}")
    return array.astype("<i4").tobytes()


def wire_type(name: str) -> pb.DataType:
    """Of the name of a dtype, as `elements` gives it."""
    found: pb.DataType = _WIRE_TYPES[name]
    return found


def _array(data: bytes, dtype: int) -> Array:
    known = _BY_WIRE_TYPE.get(dtype)
    if known is None:
        raise ValueError(f"the server sent a tensor of type {dtype}, which this client does not know")
    name, numpy_dtype = known
    array = np.frombuffer(data, numpy_dtype)
    return _from_bfloat16(array) if name == "bfloat16" else array.copy()


def _from_bfloat16(bits: Array) -> npt.NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)
