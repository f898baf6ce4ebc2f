"""Arrays as base64 of .npy files, and back; what is no such file is refused before anything is allocated."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest

from gradwire.client.arena import Agent, deserialize, get_batch_size, serialize


def npy(array: Any, **options: Any) -> str:
    file = io.BytesIO()
    np.save(file, array, **options)
    return base64.b64encode(file.getvalue()).decode()


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.uint8).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array([1, 2], ">i4"),
        np.array([True, False]),
        np.array([1.5 + 2j]),
        np.zeros((0, 4), np.float16),
    ],
    ids=lambda array: str(array.dtype),
)
def test_arrays_come_back(array: Any, batched: bool) -> None:
    text = serialize(array, batched)
    assert isinstance(text, str)
    found = np.load(io.BytesIO(base64.b64decode(text)))  # any .npy reader reads it
    np.testing.assert_array_equal(found, array if batched else array[None])
    back = deserialize(text, batched)
    assert isinstance(back, np.ndarray) and back.dtype == array.dtype and back.flags.writeable
    np.testing.assert_array_equal(back, array)


def test_nested_values_come_back() -> None:
    value = {"a": (np.ones(2), {"b": np.array(3)}), "none": None, "list": [np.zeros(1)]}
    back: Any = deserialize(serialize(value))
    assert isinstance(back, dict) and isinstance(back["a"], tuple) and isinstance(back["a"][1], dict)
    assert back["none"] is None and isinstance(back["list"], tuple)
    assert back["a"][1]["b"].shape == () and Agent.deserialize(Agent.serialize(None)) is None
    numbers: Any = deserialize(serialize([1.0, 2.0]))
    assert numbers.shape == (2,)


def test_batch_sizes() -> None:
    assert get_batch_size(np.zeros((4, 2))) == 4
    assert get_batch_size({"a": (np.zeros((5, 1)), np.zeros(1))}) == 5
    for value, text in ((None, "None observation"), ({}, "empty"), (np.array(1), "single number")):
        with pytest.raises(ValueError, match=text):
            get_batch_size(value)


def test_what_cannot_be_sent() -> None:
    for value in ("text", np.array([object()]), {"a": np.array(["x"])}):
        with pytest.raises(TypeError, match="cannot be sent"):
            serialize(value)
    with pytest.raises(ValueError, match="leading dimension"):
        serialize(np.array(1), batched=True)


def test_what_is_no_whole_npy_file_is_refused() -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999,), }"
    header += b" " * (117 - len(header)) + b"\n"
    huge = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    cases = {
        base64.b64encode(huge).decode(): "claims",
        base64.b64encode(base64.b64decode(npy(np.zeros(4)))[:-1]).decode(): "claims",
        npy(np.array([{}], object), allow_pickle=True): "objects",
        "not base64!": "not base64",
        base64.b64encode(b"x").decode(): "magic",
        npy(np.zeros((2, 3))): "size not equal to one",
    }
    for text, message in cases.items():
        with pytest.raises(ValueError, match=message):
            deserialize(text)
