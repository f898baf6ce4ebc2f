"""`serialize`, `deserialize`, `get_batch_size`: arrays as base64 of .npy files, which the HTTP door of Arena takes.

Agents of this package do not need it: they send the arrays' bytes as they are. Nothing here reads a pickle.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gradwire.client.arena.types import RLData, SerializedRLData, as_value
from gradwire.client.types.inference import ValueLike


def serialize(data: ValueLike, batched: bool = False) -> SerializedRLData:
    """Each array as base64 of a .npy file. Not `batched`: it gets a leading dimension of 1 first.

    Lists that hold arrays become tuples. TypeError for what is no array of plain elements.
    """
    if data is None:
        return None
    if isinstance(data, Mapping):
        return {key: serialize(item, batched) for key, item in data.items()}
    if isinstance(data, tuple | list) and (isinstance(data, tuple) or isinstance(as_value(data, "data"), tuple)):
        return tuple(serialize(item, batched) for item in data)
    array = np.asarray(data)
    if array.dtype.hasobject or array.dtype.kind in "US":
        raise TypeError(f"an array of {array.dtype} cannot be sent; give numbers or booleans")
    if batched and array.ndim == 0:
        raise ValueError("batched data needs a leading dimension, which a single number has not")
    file = io.BytesIO()
    np.save(file, array if batched else array[None], allow_pickle=False)
    return base64.b64encode(file.getvalue()).decode("ascii")


def deserialize(data: SerializedRLData, batched: bool = False) -> RLData:
    """Undoes `serialize`: not `batched`, the leading dimension of 1 goes. JSON arrays come back as tuples.

    ValueError for what is no whole .npy file, holds objects, or has another leading dimension.
    """
    if data is None:
        return None
    if isinstance(data, Mapping):
        return {key: deserialize(item, batched) for key, item in data.items()}
    if isinstance(data, tuple | list):
        return tuple(deserialize(item, batched) for item in data)
    array = _load(data)
    return array if batched else array.squeeze(axis=0)


def get_batch_size(observation: ValueLike) -> int:
    """The leading dimension of the first array. ValueError when there is none."""
    while isinstance(observation, Mapping | tuple | list):
        if not observation:
            raise ValueError("an empty observation has no batch size")
        observation = next(iter(observation.values() if isinstance(observation, Mapping) else observation))
    if observation is None:
        raise ValueError("None observation has no batch size")
    array = np.asarray(observation)
    if array.ndim == 0:
        raise ValueError("a single number has no batch dimension")
    return int(array.shape[0])


def _load(text: str) -> npt.NDArray[Any]:
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base64: {error}") from error
    file = io.BytesIO(raw)
    npy: Any = np.lib.format
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"a .npy file of version {version}; 1.0 and 2.0 are read")
    shape, fortran, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(file)
    if dtype.hasobject:
        raise ValueError("the .npy file holds Python objects, which are not read")
    # Before anything is allocated: a header may claim terabytes.
    if math.prod(shape) * dtype.itemsize != len(raw) - file.tell():
        raise ValueError(f"the .npy file claims {dtype} of shape {list(shape)}, which its bytes are not")
    flat = np.frombuffer(raw, dtype, offset=file.tell())
    return flat.reshape(shape, order="F" if fortran else "C").copy()
