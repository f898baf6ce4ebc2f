"""Arrays as the Arena's clients write them: base64 of a .npy file (numpy.lib.format, versions 1 to 3).

A header is a claim. It is compared with the bytes that are there before anything is allocated, and only plain numbers
are taken: other dtypes hold objects, which are pickles, or nothing that a space can describe.
"""

from __future__ import annotations

import ast
import binascii
import io
import math
import re
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from gradwire.server.errors import InvalidArgument

Array = npt.NDArray[Any]

_MAGIC = b"\x93NUMPY"
_LENGTHS = {1: struct.Struct("<H"), 2: struct.Struct("<I"), 3: struct.Struct("<I")}  # of the header, by version
_MAX_HEADER_BYTES = 4096
_MAX_DIMENSIONS = 32
_MAX_ELEMENTS = 2**40
_NUMBERS = re.compile(r"[<>=|]?(?:\?|[biuf][0-9]{1,2})")
_KEYS = {"descr", "fortran_order", "shape"}


def read_array(text: str, path: str) -> Array:
    """The array, in this machine's byte order; read-only where its bytes need no change.

    Raises InvalidArgument at `path`.
    """
    try:
        data = binascii.a2b_base64(text.encode("ascii"), strict_mode=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise InvalidArgument.at(path, f"is no base64: {error}") from None
    header, start = _header(data, path)
    dtype, shape = _dtype(header["descr"], path), _shape(header["shape"], path)
    expected, found = math.prod(shape) * dtype.itemsize, len(data) - start
    if expected != found:
        text = f"claims shape {list(shape)} of {dtype.name}, which takes {expected} bytes, but {found} follow"
        raise InvalidArgument.at(path, text)
    if dtype.kind == "b" and data[start:].strip(b"\0\1"):
        # numpy trusts the bytes of a bool: with any other value, counts and masks go wrong.
        raise InvalidArgument.at(path, "holds a bool that is neither 0 nor 1")
    array = np.frombuffer(data, dtype, offset=start)
    # Reshaped after Fortran's order first, so that `order` costs no copy.
    array = array.reshape(shape[::-1]).transpose() if header["fortran_order"] else array.reshape(shape)
    native = array.astype(dtype.newbyteorder("="), copy=False)
    return native if native.flags.aligned else native.copy()


def write_array(array: Array) -> str:
    """Base64 of a .npy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return binascii.b2a_base64(file.getbuffer(), newline=False).decode("ascii")


def _header(data: bytes, path: str) -> tuple[dict[str, Any], int]:
    if data[:6] != _MAGIC or len(data) < 8:
        raise InvalidArgument.at(path, "is no .npy file: write it with numpy.save, and then in base64")
    length = _LENGTHS.get(data[6])
    if length is None:
        raise InvalidArgument.at(path, f"is a .npy file of version {data[6]}; 1, 2 and 3 are read")
    begin = 8 + length.size
    if len(data) < begin:
        raise InvalidArgument.at(path, "is a .npy file that ends in its header")
    (size,) = length.unpack_from(data, 8)
    if size > _MAX_HEADER_BYTES:
        raise InvalidArgument.at(path, f"has a .npy header of {size} bytes; an array of numbers needs no such")
    if len(data) < begin + size:
        raise InvalidArgument.at(path, "is a .npy file that ends in its header")
    try:
        header = ast.literal_eval(data[begin : begin + size].decode("utf-8").strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):  # ValueError: no UTF-8 either
        header = None
    if not isinstance(header, dict) or set(header) != _KEYS or not isinstance(header["fortran_order"], bool):
        raise InvalidArgument.at(path, "has a .npy header that is not one of descr, fortran_order and shape")
    return header, begin + size


def _dtype(descr: Any, path: str) -> np.dtype[Any]:
    if isinstance(descr, str) and _NUMBERS.fullmatch(descr):
        try:
            dtype: np.dtype[Any] = np.dtype(descr)
        except TypeError:
            dtype = np.dtype("O")  # a size that there is not
        if dtype.kind in "biuf" and dtype.itemsize <= 8:
            return dtype
    raise InvalidArgument.at(path, f"is of dtype {str(descr)[:60]!r}; only bool, integers and float16 to 64 are taken")


def _shape(shape: Any, path: str) -> tuple[int, ...]:
    if not isinstance(shape, tuple) or any(type(dim) is not int or dim < 0 for dim in shape):
        raise InvalidArgument.at(path, "has a .npy header whose shape is no tuple of whole numbers")
    if len(shape) > _MAX_DIMENSIONS:
        raise InvalidArgument.at(path, f"has {len(shape)} dimensions; at most {_MAX_DIMENSIONS} are taken")
    # Zeros are left out: numpy refuses [0, 2^62], too.
    if math.prod(dim or 1 for dim in shape) > _MAX_ELEMENTS:
        raise InvalidArgument.at(path, f"claims shape {list(shape)[:8]}, more than any request holds")
    return shape
