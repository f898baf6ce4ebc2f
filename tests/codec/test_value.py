"""Values of agents, both ways, and those that no array can be made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gradwire.server.codec.value import decode_value, put_value
from gradwire.server.errors import InvalidArgument
from gradwire.v1 import inference_pb2, tensor_pb2

DTYPES = st.sampled_from(["?", "u1", "<i4", "<i8", "<f2", "<f4", "<f8", ">f4", ">i2", "i1", "<i2", "<u2", "<u4"])
LEAVES = DTYPES.flatmap(lambda dtype: arrays.arrays(np.dtype(dtype), arrays.array_shapes(min_dims=0, max_dims=3)))
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.dictionaries(st.text(max_size=5), inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=6,
)


def assert_same(left: Any, right: Any) -> None:
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key, value in left.items():
            assert_same(value, right[key])
    elif isinstance(left, tuple):
        for ours, theirs in zip(left, right, strict=True):
            assert_same(ours, theirs)
    else:
        np.testing.assert_array_equal(left, right)
        assert left.shape == right.shape and np.can_cast(left.dtype, right.dtype)


def written(value: Any) -> inference_pb2.Value:
    message = inference_pb2.Value()
    put_value(message, value)
    return message


@given(VALUES)
def test_values_come_back(value: Any) -> None:
    wire = inference_pb2.Value.FromString(written(value).SerializeToString())
    assert_same(value, decode_value(wire, "observation"))


def test_keys_without_a_value_are_left_out() -> None:
    assert set(written({"a": np.zeros(1), "b": None}).map.entries) == {"a"}


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (inference_pb2.Value(), "v"),
        (inference_pb2.Value(map={"entries": {"a": inference_pb2.Value()}}), "v.a"),
        (inference_pb2.Value(list={"items": [inference_pb2.Value()]}), "v[0]"),
        (inference_pb2.Value(tensor=tensor_pb2.Tensor(dtype="DATA_TYPE_FLOAT32", shape=[2**40])), "v.data"),
        (inference_pb2.Value(tensor=tensor_pb2.Tensor(dtype="DATA_TYPE_FLOAT32", shape=[2**62, 2**62])), "v.shape"),
        (inference_pb2.Value(tensor=tensor_pb2.Tensor(dtype="DATA_TYPE_FLOAT32", shape=[1], data=b"xy")), "v.data"),
        (inference_pb2.Value(tensor=tensor_pb2.Tensor(shape=[0])), "v.dtype"),
    ],
)
def test_what_is_no_value_is_named(message: inference_pb2.Value, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        decode_value(message, "v")
    assert caught.value.violations[0].field == field
