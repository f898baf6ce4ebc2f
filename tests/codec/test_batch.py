"""Training batches: real tokens out of any padding, mistakes named by column and row, outputs back on the grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradwire.server.codec.batch import decode_batch, fill_column, in_request_terms
from gradwire.server.codec.tensor import array_to_ragged, array_to_tensor, ragged_to_array, tensor_to_array
from gradwire.server.errors import InvalidArgument
from gradwire.v1 import tensor_pb2, training_pb2

IDS = [[5, 6, 7, 0], [8, 9, 0, 0]]
REAL = [[1, 1, 1, 0], [1, 1, 0, 0]]


def dense(values: Any, dtype: str = "<i4") -> tensor_pb2.BatchTensor:
    return tensor_pb2.BatchTensor(dense=array_to_tensor(np.array(values, dtype)))


def ragged(rows: list[list[float]], dtype: str = "<i4") -> tensor_pb2.BatchTensor:
    values = np.array([value for row in rows for value in row], dtype)
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return tensor_pb2.BatchTensor(ragged=array_to_ragged(values, offsets))


def batch(ids: Any = IDS, real: Any = REAL, **columns: tensor_pb2.BatchTensor) -> training_pb2.TrainingBatch:
    message = training_pb2.TrainingBatch(input_ids=dense(ids))
    for name, column in columns.items():
        getattr(message, name).CopyFrom(column)
    if real is not None:
        message.attention_mask.CopyFrom(array_to_tensor(np.array(real, "<i8")))
    return message


def with_groups(groups: list[Any]) -> training_pb2.TrainingBatch:
    message = batch()
    message.prompt_group_ids.CopyFrom(array_to_tensor(np.array(groups)))
    return message


def refused(message: training_pb2.TrainingBatch) -> tuple[str, str]:
    """Field and description of the one violation."""
    with pytest.raises(InvalidArgument) as caught:
        decode_batch(message)
    (violation,) = caught.value.violations
    return violation.field, violation.description


@pytest.mark.parametrize(
    ("ids", "real"),
    [
        (IDS, REAL),  # padding on the right
        ([[0, 5, 6, 7], [0, 0, 8, 9]], [[0, 1, 1, 1], [0, 0, 1, 1]]),  # on the left
        ([[0, 5, 6, 7], [8, 9, 0, 0]], [[0, 1, 1, 1], [1, 1, 0, 0]]),  # each row its own side
    ],
)
def test_padding_is_taken_out(ids: list[list[int]], real: list[list[int]]) -> None:
    decoded = decode_batch(batch(ids, real)).batch
    assert decoded.input_ids.tolist() == [5, 6, 7, 8, 9]
    assert decoded.row_offsets.tolist() == [0, 3, 5]
    assert decoded.row_width == 4
    assert decoded.loss_mask is not None
    assert decoded.loss_mask.tolist() == [1, 1, 0, 1, 0]


def test_without_an_attention_mask_all_tokens_are_real() -> None:
    assert decode_batch(batch(real=None)).batch.input_ids.tolist() == [5, 6, 7, 0, 8, 9, 0, 0]


def test_ragged_rows_are_taken_as_they_are() -> None:
    message = training_pb2.TrainingBatch(
        input_ids=ragged([[5, 6, 7], [8, 9]]), advantages=ragged([[1, 2, 3], [4, 5]], "<f4")
    )
    decoded = decode_batch(message).batch
    assert (decoded.input_ids.tolist(), decoded.row_offsets.tolist()) == ([5, 6, 7, 8, 9], [0, 3, 5])
    assert decoded.row_width == 3
    assert decoded.columns["advantages"].tolist() == [1, 2, 3, 4, 5]


def test_columns_follow_their_tokens_under_the_engines_names() -> None:
    grid = np.arange(8).reshape(2, 4)
    decoded = decode_batch(
        batch(
            advantages=dense(grid, "<f4"),
            old_log_probs_shifted=dense(grid, "<f8"),
            prox_logp_shifted=dense(grid, "<f2"),
            ref_log_probs_shifted=dense(grid, "<f4"),
            loss_mask=dense([[0, 1, 0, 0], [1, 0, 0, 0]], "?"),
        )
    )
    assert set(decoded.batch.columns) == {"advantages", "old_log_probs", "prox_log_probs", "ref_log_probs"}
    for column in decoded.batch.columns.values():
        assert column.dtype == np.float32
        assert column.tolist() == [0, 1, 2, 4, 5]
    assert decoded.batch.loss_mask is not None
    assert decoded.batch.loss_mask.tolist() == [0, 1, 0, 1, 0]
    assert decoded.warnings == ()


def test_a_mask_that_was_left_out_is_warned_of() -> None:
    says = "no loss_mask: all real tokens but each row's last one count"
    assert decode_batch(batch()).warnings == (says,)
    ragged_rows = training_pb2.TrainingBatch(input_ids=ragged([[5, 6, 7], [8, 9]]))  # which hold no padding
    assert decode_batch(ragged_rows).warnings == (says,)
    (warning,) = decode_batch(batch(real=None)).warnings
    assert warning.startswith(says) and warning.endswith("every token of a row is real and is trained on, padding too")


@pytest.mark.parametrize(
    ("message", "field", "says"),
    [
        (batch(real=[[1, 0, 1, 0], [1, 1, 0, 0]]), "attention_mask", "row 0 has padding between real tokens"),
        (batch(real=[[1, 1, 1], [1, 1, 1]]), "attention_mask", "has shape [2, 3], input_ids has [2, 4]"),
        (batch(real=[[1, 1, 2, 0], [1, 1, 0, 0]]), "attention_mask", "other than 0 and 1"),
        (batch(real=[[1, 1, 1, 1], [0, 0, 0, 0]]), "input_ids", "row 1 has no real token"),
        (batch([[5, 6, 7], [-1, -100, 9]], [[1, 1, 1], [0, 1, 1]]), "input_ids", "row 1, position 1 holds -100; token"),
        (
            training_pb2.TrainingBatch(input_ids=ragged([[5, 6, 7], [8, -100, -100]])),
            "input_ids",
            "row 1, position 1 holds -100; token ids are 0 to 2^31 - 1; what does not count in the loss keeps its "
            "token here and has loss_mask 0",
        ),
        (batch([1, 2], None), "input_ids.dense.shape", "it takes [rows, width]"),
        (batch(np.zeros((0, 4)), None), "input_ids.dense.shape", "none of them 0"),
        (batch([[1], [2]], None), "input_ids", "no row has two tokens"),
        (training_pb2.TrainingBatch(), "input_ids", "is required"),
        (training_pb2.TrainingBatch(input_ids=dense([[1.0, 2.0]], "<f4")), "input_ids", "float32"),
        (
            training_pb2.TrainingBatch(input_ids=dense([[2**31, 2]], "<i8")),
            "input_ids",
            "row 0, position 0 holds 2147483648",
        ),
        (training_pb2.TrainingBatch(input_ids=ragged([[1, 2], []])), "input_ids", "row 1 has no real token"),
        (batch(advantages=dense([[1, 2]], "<f4")), "advantages", "has shape [1, 2], input_ids has [2, 4]"),
        (batch(advantages=ragged([[1, 2, 3], [4, 5]], "<f4")), "advantages", "is ragged, but input_ids is dense"),
        (batch(advantages=tensor_pb2.BatchTensor()), "advantages", "is empty"),
        (batch(versions=dense(IDS, "<f4")), "versions", "holds float32"),
        (with_groups([1, 2, 3]), "prompt_group_ids", "is int64 [3]; it is one integer for each of the 2 rows"),
        (with_groups([0.5, 1.0]), "prompt_group_ids", "is float64 [2]"),
    ],
)
def test_mistakes_are_named(message: training_pb2.TrainingBatch, field: str, says: str) -> None:
    where, description = refused(message)
    assert where == f"batch.{field}"
    assert says in description


def test_versions_and_prompts_come_along() -> None:
    message = with_groups([7, -1])
    message.versions.CopyFrom(dense([[3, 2, 1, -1], [0, 5, -1, -1]], "<i8"))
    decoded = decode_batch(message).batch
    assert decoded.columns["versions"].tolist() == [3, 2, 1, 0, 5]
    assert decoded.prompt_group_ids is not None
    assert decoded.prompt_group_ids.tolist() == [7, -1]
    assert decode_batch(batch()).batch.prompt_group_ids is None


def test_ragged_rows_take_no_attention_mask_and_no_other_lengths() -> None:
    message = training_pb2.TrainingBatch(input_ids=ragged([[1, 2], [3]]), advantages=ragged([[1], [2, 3]], "<f4"))
    assert refused(message) == ("batch.advantages", "has rows of other lengths than input_ids")
    message.attention_mask.CopyFrom(array_to_tensor(np.ones((2, 2), np.int32)))
    assert refused(message)[0] == "batch.attention_mask"


@pytest.mark.parametrize(
    ("mask", "says"),
    [
        ([[1, 1, 0, 1], [1, 0, 0, 0]], "row 0 counts padding"),
        ([[1, 1, 0, 0], [1, 1, 0, 0]], "row 1 counts its last token"),
        ([[0, 0, 0, 0], [0, 0, 0, 0]], "is 0 everywhere"),
        ([[np.nan, 1, 0, 0], [1, 0, 0, 0]], "negative or non-finite"),
        ([[np.inf, 1, 0, 0], [1, 0, 0, 0]], "negative or non-finite"),
        ([[-1, 1, 0, 0], [1, 0, 0, 0]], "negative or non-finite"),
        ([[1e300, 1, 0, 0], [1, 0, 0, 0]], "negative or non-finite"),  # infinite in float32
    ],
)
def test_loss_masks_that_cannot_be_meant_are_refused(mask: list[list[float]], says: str) -> None:
    field, description = refused(batch(loss_mask=dense(mask, "<f8")))
    assert field == "batch.loss_mask"
    assert says in description


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=5))
def test_outputs_stand_again_where_their_tokens_stood(rows: list[tuple[int, int, int]]) -> None:
    width = max(2, max(sum(row) for row in rows))
    real = np.zeros((len(rows) + 1, width), np.int64)
    real[-1] = 1  # one row that has something to predict
    for row, (left, tokens, _) in enumerate(rows):
        real[row, left : left + tokens] = 1
    ids = np.where(real, np.arange(real.size).reshape(real.shape) + 1, 0)
    decoded = decode_batch(batch(ids, real))
    encoded = decoded.layout.encode(decoded.batch.input_ids.astype(np.float32))
    assert encoded is not None
    np.testing.assert_array_equal(tensor_to_array(encoded.dense, "t"), ids)


def test_outputs_of_ragged_rows_are_ragged() -> None:
    layout = decode_batch(training_pb2.TrainingBatch(input_ids=ragged([[5, 6, 7], [8, 9]]))).layout
    encoded = layout.encode(np.arange(5, dtype=np.float32))
    assert encoded is not None
    values, offsets = ragged_to_array(encoded.ragged, "r")
    assert (values.tolist(), offsets.tolist()) == ([0, 1, 2, 3, 4], [0, 3, 5])
    assert layout.encode(None) is None


def test_a_filled_column_has_a_warning() -> None:
    filled = fill_column(decode_batch(batch()), "advantages", 1.0, "no advantages: 1 everywhere")
    assert filled.batch.columns["advantages"].tolist() == [1.0] * 5
    assert "no advantages: 1 everywhere" in filled.warnings


def test_an_engines_names_become_those_of_the_request() -> None:
    names = {"batch.old_log_probs": "batch.old_log_probs_shifted", "lr": "learning_rate", "batch.other": "batch.other"}
    for engine, request in names.items():
        with pytest.raises(InvalidArgument) as caught, in_request_terms():
            raise InvalidArgument.at(engine, "is wrong")
        assert caught.value.violations[0].field == request
