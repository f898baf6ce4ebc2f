"""Arrays of the wire: what numpy writes is read back, and what lies about itself is refused before memory is taken."""

from __future__ import annotations

import base64
import io
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from gradwire.server.errors import InvalidArgument
from gradwire.server.http.arena.npy import read_array, write_array

NUMBERS = st.one_of(
    npst.boolean_dtypes(),
    npst.integer_dtypes(endianness="?"),
    npst.unsigned_integer_dtypes(endianness="?"),
    npst.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
)


def wire(array: Any, **options: Any) -> str:
    file = io.BytesIO()
    np.save(file, array, **options)
    return base64.b64encode(file.getvalue()).decode()


def forged(descr: str = "'<f4'", shape: str = "(1, 8)", order: str = "False", data: bytes = b"\0" * 32) -> str:
    header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()
    return base64.b64encode(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data).decode()


@given(npst.arrays(NUMBERS, npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)), st.booleans())
def test_what_numpy_writes_is_read(array: Any, fortran: bool) -> None:
    written = np.asfortranarray(array) if fortran and array.ndim else array
    read = read_array(wire(written), "obs")
    np.testing.assert_array_equal(read, array)
    assert read.dtype == array.dtype.newbyteorder("=") and read.flags.aligned
    np.testing.assert_array_equal(read_array(write_array(read), "obs"), array)


@pytest.mark.parametrize("version", [(2, 0), (3, 0)])
def test_other_versions_of_the_format(version: tuple[int, int]) -> None:
    file = io.BytesIO()
    write: Any = np.lib.format.write_array
    write(file, np.arange(6.0).reshape(2, 3), version=version)
    read = read_array(base64.b64encode(file.getvalue()).decode(), "obs")
    np.testing.assert_array_equal(read, np.arange(6.0).reshape(2, 3))


LIES = {
    "terabytes": (forged(shape="(1099511627776,)"), "takes 4398046511104 bytes, but 32 follow"),
    "more than there are numbers": (forged(shape="(4611686018427387904, 4)"), "more than any request holds"),
    "nothing of much": (forged(shape="(0, 4611686018427387904)", data=b""), "more than any request holds"),
    "too few bytes": (forged(data=b"\0" * 31), "takes 32 bytes, but 31 follow"),
    "too many bytes": (forged(data=b"\0" * 33), "takes 32 bytes, but 33 follow"),
    "a negative dimension": (forged(shape="(-1, 8)"), "no tuple of whole numbers"),
    "a fraction": (forged(shape="(1.0, 8)"), "no tuple of whole numbers"),
    "a truth for a dimension": (forged(shape="(True, 8)"), "no tuple of whole numbers"),
    "no tuple": (forged(shape="8"), "no tuple of whole numbers"),
    "many dimensions": (forged(shape="(" + "1," * 40 + ")"), "at most 32"),
    "objects": (forged(descr="'|O'"), "only bool, integers and float"),
    "text": (forged(descr="'<U8'"), "only bool, integers and float"),
    "complex": (forged(descr="'<c8'"), "only bool, integers and float"),
    "dates": (forged(descr="'<M8[s]'"), "only bool, integers and float"),
    "records": (forged(descr="[('a', '<f4')]"), "only bool, integers and float"),
    "arrays of arrays": (forged(descr="'(8,)f4'"), "only bool, integers and float"),
    "a size that there is not": (forged(descr="'<f3'"), "only bool, integers and float"),
    "long double": (forged(descr="'<f16'"), "only bool, integers and float"),
    "a third truth": (forged(descr="'|b1'", shape="(2,)", data=b"\1\2"), "neither 0 nor 1"),
    "code for a header": (forged(shape="__import__('os')"), "not one of descr"),
    "parentheses": (forged(shape="(" * 3000), "not one of descr"),
    "a list for a key": (forged(shape="{[1]: 2}"), "not one of descr"),
    "an order that is none": (forged(order="7"), "not one of descr"),
    "a long header": (forged(shape="(" + "1," * 3000 + ")"), "a .npy header of"),
    "no npy": (base64.b64encode(b"hello there").decode(), "no .npy file"),
    "an empty string": ("", "no .npy file"),
    "half a header": (forged()[:40], "ends in its header"),
    "a version to come": (base64.b64encode(b"\x93NUMPY\x09\x00" + bytes(80)).decode(), "version 9"),
    "no base64": ("!!!!", "no base64"),
    "base64 of another alphabet": ("k05V_VBZ", "no base64"),
    "half a quantum": (wire(np.zeros(3))[:-3], "no base64"),
    "umlauts": ("äöü", "no base64"),
}


@pytest.mark.parametrize(("text", "said"), LIES.values(), ids=LIES)
def test_a_lie_is_refused_before_memory_is_taken(text: str, said: str) -> None:
    tracemalloc.start()
    with pytest.raises(InvalidArgument) as raised:
        read_array(text, "obs.camera")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert said in raised.value.message
    assert raised.value.violations[0].field == "obs.camera"
    assert peak < 1 << 20


def test_a_pickle_is_not_read() -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return pytest.fail, ("a pickle was read",)

    with pytest.raises(InvalidArgument, match="only bool"):
        read_array(wire(np.array([Bomb()], object), allow_pickle=True), "obs")


@given(st.binary(max_size=300))
def test_any_bytes_are_an_array_or_an_error_of_the_request(data: bytes) -> None:
    for tried in (data, b"\x93NUMPY\x01\x00" + data):
        try:
            read_array(base64.b64encode(tried).decode(), "obs")
        except InvalidArgument:
            pass
