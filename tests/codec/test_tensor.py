"""Tensors: what was packed is what is read, and bytes that do not fit are refused before anything is made."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gradwire.server.codec.shared import SharedReads
from gradwire.server.codec.tensor import (
    _NUMPY,
    array_to_ragged,
    array_to_tensor,
    ragged_to_array,
    tensor_to_array,
    token_ids_from_bytes,
)
from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.errors import FailedPrecondition, InvalidArgument, ResourceExhausted
from gradwire.v1 import tensor_pb2

DTYPES = ["?", "u1", "<i4", "<i8", "<f2", "<f4", "<f8", ">i4", ">i8", ">f2", ">f4", ">f8"]
F32 = tensor_pb2.DATA_TYPE_FLOAT32
BF16 = tensor_pb2.DATA_TYPE_BFLOAT16


def arrays() -> st.SearchStrategy[npt.NDArray[Any]]:
    shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
    return st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(np.dtype(dtype), shapes))


def field_of(error: InvalidArgument) -> str:
    (violation,) = error.violations
    return violation.field


@given(arrays(), st.booleans())
def test_every_type_and_shape_comes_back(array: npt.NDArray[Any], transposed: bool) -> None:
    array = array.T if transposed else array
    back = tensor_to_array(array_to_tensor(array), "t")
    assert back.shape == array.shape
    assert back.dtype == array.dtype.newbyteorder("<")
    np.testing.assert_array_equal(back, array)


@given(hnp.arrays(np.uint16, hnp.array_shapes(min_dims=0, min_side=0)))
def test_bfloat16_is_read_as_the_float32_of_the_same_value(bits: npt.NDArray[np.uint16]) -> None:
    back = tensor_to_array(tensor_pb2.Tensor(dtype=BF16, shape=bits.shape, data=bits.tobytes()), "t")
    assert back.dtype == np.float32
    assert back.shape == bits.shape
    np.testing.assert_array_equal(np.asarray(back).view(np.uint32) >> 16, bits)


def test_the_message_decides_whether_a_number_is_a_scalar_or_a_row_of_one() -> None:
    assert tensor_to_array(array_to_tensor(np.array(3.0)), "t").shape == ()
    assert tensor_to_array(array_to_tensor(np.array([3.0])), "t").shape == (1,)


@pytest.mark.parametrize("length", [0, 7, 9, 12])
def test_another_number_of_bytes_is_refused(length: int) -> None:
    with pytest.raises(InvalidArgument, match=f"holds {length} bytes, but shape .* takes 8") as caught:
        tensor_to_array(tensor_pb2.Tensor(dtype=F32, shape=[2], data=bytes(length)), "batch.x")
    assert field_of(caught.value) == "batch.x.data"


@pytest.mark.parametrize(
    "shape", [[2**62, 4], [2**63 - 1] * 4, [2**32, 2**32], [0, 2**62, 2**62], [2**41], [-1], [2, -3, 0], [1] * 9]
)
@pytest.mark.parametrize("data", [b"", bytes(16)])
def test_shapes_that_cannot_be_are_refused(shape: list[int], data: bytes) -> None:
    with pytest.raises(InvalidArgument) as caught:
        tensor_to_array(tensor_pb2.Tensor(dtype=F32, shape=shape, data=data), "t")
    assert field_of(caught.value) == "t.shape"


def test_a_type_is_required() -> None:
    for code in (tensor_pb2.DATA_TYPE_UNSPECIFIED, 99):
        with pytest.raises(InvalidArgument) as caught:
            tensor_to_array(tensor_pb2.Tensor(dtype=code, shape=[0]), "t")  # type: ignore[arg-type]
        assert field_of(caught.value) == "t.dtype"


def test_a_bool_is_0_or_1() -> None:
    message = tensor_pb2.Tensor(dtype=tensor_pb2.DATA_TYPE_BOOL, shape=[3], data=b"\1\2\0")
    with pytest.raises(InvalidArgument, match="neither 0 nor 1"):
        tensor_to_array(message, "t")


# Ragged rows


@given(st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5), min_size=1, max_size=6))
def test_ragged_rows_come_back(rows: list[list[int]]) -> None:
    values = np.array([value for row in rows for value in row], np.int32)
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    back, back_offsets = ragged_to_array(array_to_ragged(values, offsets), "r")
    np.testing.assert_array_equal(back, values)
    np.testing.assert_array_equal(back_offsets, offsets)


@pytest.mark.parametrize(
    "offsets",
    [
        [1, 4],  # does not begin with 0
        [0, 3, 2, 4],  # falls
        [0, 3],  # ends too early
        [0, 5],  # ends too late
        [0, -1, 4],
        [0, 2**63 - 1, -(2**63), -1, 4],  # each difference overflows to a positive one
    ],
)
def test_offsets_that_do_not_fit_the_elements_are_refused(offsets: list[int]) -> None:
    message = tensor_pb2.RaggedTensor(dtype=F32, data=bytes(16), row_offsets=np.array(offsets, "<i8").tobytes())
    with pytest.raises(InvalidArgument) as caught:
        ragged_to_array(message, "r")
    assert field_of(caught.value) == "r.row_offsets"


@pytest.mark.parametrize(
    ("data", "offsets", "field"),
    [(bytes(15), bytes(16), "r.data"), (bytes(16), bytes(8), "r.row_offsets"), (bytes(16), bytes(17), "r.row_offsets")],
)
def test_broken_bytes_of_ragged_rows_are_refused(data: bytes, offsets: bytes, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        ragged_to_array(tensor_pb2.RaggedTensor(dtype=F32, data=data, row_offsets=offsets), "r")
    assert field_of(caught.value) == field


def test_token_ids_are_whole_int32() -> None:
    assert token_ids_from_bytes(np.array([1, -2], "<i4").tobytes(), "p").tolist() == [1, -2]
    with pytest.raises(InvalidArgument, match="take 4 each"):
        token_ids_from_bytes(bytes(6), "p")


# Shared memory


def in_segment(segment: str, *, offset: int = 0, length: int = 8) -> tensor_pb2.Tensor:
    memory = tensor_pb2.SharedMemory(name=segment, offset=offset, length=length)
    return tensor_pb2.Tensor(dtype=F32, shape=[2], shared_memory=memory)


def read(message: tensor_pb2.Tensor, limit: int = 64) -> npt.NDArray[Any]:
    shared = SharedReads(limit)
    array = tensor_to_array(message, "t", shared)
    shared.read_now()
    return array


def test_shared_memory_is_read_and_copied() -> None:
    with SharedSegment.create(16, label="test") as segment:
        segment.buffer[4:12] = np.array([1.5, 2.5], "<f4").tobytes()
        array = read(in_segment(segment.name, offset=4))
        segment.buffer[4:12] = bytes(8)
        segment.unlink()
    assert array.tolist() == [1.5, 2.5]


@pytest.mark.parametrize("code", [code for code in tensor_pb2.DataType.values() if code])
def test_shared_memory_holds_what_data_would(code: int) -> None:
    raw = np.random.default_rng(code).integers(0, 2, 64, np.uint8).tobytes()
    for shape in ([], [0, 3], [2, 3]):
        length = math.prod(shape) * _NUMPY[code].itemsize
        message = tensor_pb2.Tensor(dtype=code, shape=shape, data=raw[:length])  # type: ignore[arg-type]
        sent = tensor_to_array(message, "t")
        with SharedSegment.create(64, label="test") as segment:
            segment.buffer[:] = raw
            message.shared_memory.CopyFrom(tensor_pb2.SharedMemory(name=segment.name, length=length))
            shared = read(message)
            segment.unlink()
        assert shared.dtype == sent.dtype and shared.shape == sent.shape and shared.tobytes() == sent.tobytes()


def test_a_shared_bool_is_0_or_1() -> None:
    with SharedSegment.create(2, label="test") as segment:
        segment.buffer[:] = b"\1\2"
        memory = tensor_pb2.SharedMemory(name=segment.name, length=2)
        with pytest.raises(InvalidArgument, match="neither 0 nor 1"):
            read(tensor_pb2.Tensor(dtype=tensor_pb2.DATA_TYPE_BOOL, shape=[2], shared_memory=memory))
        segment.unlink()


def test_shared_memory_is_refused_unless_allowed() -> None:
    with pytest.raises(FailedPrecondition) as caught:
        tensor_to_array(in_segment("gradwire-x"), "t")
    assert caught.value.reason == "SHARED_MEMORY_UNAVAILABLE"


def test_shared_memory_that_is_not_there_asks_for_the_bytes() -> None:
    with pytest.raises(
        FailedPrecondition, match=r"^t\.shared_memory: cannot open segment 'gradwire-nothing'"
    ) as caught:
        read(in_segment("gradwire-nothing"))
    assert caught.value.reason == "SHARED_MEMORY_UNAVAILABLE"


def test_shared_memory_that_is_too_short_names_its_field() -> None:
    with SharedSegment.create(10, label="test") as segment:
        cases = [
            in_segment("../etc/passwd"),
            in_segment(segment.name, offset=4),
            in_segment(segment.name, offset=2**63),
        ]
        for message in cases:
            with pytest.raises(InvalidArgument) as caught:
                read(message)
            assert field_of(caught.value) == "t.shared_memory"
        with pytest.raises(InvalidArgument, match="takes 8 bytes"):
            read(in_segment(segment.name, length=4))
        segment.unlink()


def test_a_request_names_so_much_shared_memory_and_no_more() -> None:
    huge = tensor_pb2.SharedMemory(name="gradwire-x", length=4 << 39)
    with pytest.raises(ResourceExhausted, match="64 bytes of shared memory"):
        read(tensor_pb2.Tensor(dtype=F32, shape=[1 << 39], shared_memory=huge))
    shared = SharedReads(20)
    for _ in range(2):
        tensor_to_array(in_segment("gradwire-x"), "t", shared)
    with pytest.raises(ResourceExhausted):
        tensor_to_array(in_segment("gradwire-x"), "t", shared)
