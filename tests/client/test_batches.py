"""Training batches: layouts, dtypes, torch tensors, and how large ones travel."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from gradwire.client import AsyncClient, TrainingBatch
from gradwire.client._convert.tensors import put_tensor, rows_from_proto, tensor_from_proto
from gradwire.client._convert.training import batch_to_proto
from gradwire.v1 import tensor_pb2, training_pb2
from tests.client.fake import Fake

IDS = np.arange(6, dtype=np.int32).reshape(2, 3)


def column(batch: object, name: str) -> Any:
    """A column as the server reads it."""
    message = batch_to_proto(batch)  # type: ignore[arg-type]
    value = getattr(message, name)
    return tensor_from_proto(value) if isinstance(value, tensor_pb2.Tensor) else rows_from_proto(value)


def test_columns_are_those_of_the_contract() -> None:
    fields = set(training_pb2.TrainingBatch.DESCRIPTOR.fields_by_name)
    assert set(TrainingBatch.__dataclass_fields__) == fields


def test_padded_layout() -> None:
    batch = TrainingBatch(input_ids=IDS, attention_mask=IDS > 0, loss_mask=IDS % 2, advantages=IDS * 0.5)
    assert column(batch, "input_ids").dtype == np.int32
    assert column(batch, "attention_mask").tolist() == [[False, True, True], [True, True, True]]
    assert column(batch, "loss_mask").dtype == np.int32
    assert column(batch, "advantages").dtype == np.float32
    assert column(batch, "advantages").tolist() == (IDS * 0.5).tolist()


@pytest.mark.parametrize("rows", [[[1, 2, 3], [4]], [np.array([1, 2, 3]), np.array([4])], ((1, 2, 3), (4,))])
def test_rows_of_differing_lengths(rows: Any) -> None:
    batch = {"input_ids": rows, "old_log_probs_shifted": [[-1.0, -2.0, 0.0], [0.0]]}
    assert [row.tolist() for row in column(batch, "input_ids")] == [[1, 2, 3], [4]]
    assert [row.tolist() for row in column(batch, "old_log_probs_shifted")] == [[-1, -2, 0], [0]]


def test_an_empty_row_is_one_of_integers() -> None:
    # The server says which row it is; numpy takes an empty list for floats.
    assert [row.tolist() for row in column({"input_ids": [[1, 2], []]}, "input_ids")] == [[1, 2], []]


def test_object_arrays_are_rows() -> None:
    rows = np.empty(2, object)
    rows[:] = [np.array([1, 2]), np.array([3])]
    assert [row.tolist() for row in column({"input_ids": rows}, "input_ids")] == [[1, 2], [3]]


def test_an_advantage_for_each_row_is_spread_over_it() -> None:
    assert column({"input_ids": IDS, "advantages": [0.5, -1]}, "advantages").tolist() == [[0.5] * 3, [-1] * 3]
    ragged = column({"input_ids": [[1, 2], [3]], "advantages": np.array([0.5, -1])}, "advantages")
    assert [row.tolist() for row in ragged] == [[0.5, 0.5], [-1]]
    with pytest.raises(ValueError, match="3 entries for 2 rows"):
        column({"input_ids": IDS, "advantages": [1, 2, 3]}, "advantages")


def test_groups() -> None:
    assert column({"input_ids": IDS, "prompt_group_ids": [4, 4]}, "prompt_group_ids").dtype == np.int64
    with pytest.raises(ValueError, match="one integer for each of 2 rows"):
        column({"input_ids": IDS, "prompt_group_ids": [4]}, "input_ids")


def test_integer_types() -> None:
    assert column({"input_ids": IDS.astype(np.int64)}, "input_ids").dtype == np.int64
    assert column({"input_ids": IDS.astype(np.uint8)}, "input_ids").dtype == np.int32
    assert column({"input_ids": IDS.astype(np.uint16)}, "input_ids").tolist() == IDS.tolist()
    assert column({"input_ids": IDS.astype(">i4")}, "input_ids").tolist() == IDS.tolist()
    assert column({"input_ids": IDS[:, ::-1]}, "input_ids").tolist() == IDS[:, ::-1].tolist()


@pytest.mark.parametrize(
    ("batch", "complaint"),
    [
        ({"inputs": IDS}, "did you mean 'input_ids'"),
        ({}, "input_ids is missing"),
        ({"input_ids": IDS.astype(float)}, "float64; it holds integers"),
        ({"input_ids": np.arange(3)}, r"shape \[3\]"),
        ({"input_ids": []}, "no rows"),
        ({"input_ids": [[1], [1, [2]]]}, r"^batch\.input_ids\[1\] is \[1, \[2\]\] \(list\), which is no array"),
        ({"input_ids": [[1], ["a"]]}, r"^batch\.input_ids\[1\] holds <U1"),
        ({"input_ids": IDS, "advantages": [1, [2]]}, r"^batch\.advantages is \[1, \[2\]\]"),
        ({"input_ids": np.zeros((0, 3), int)}, "no tokens"),
        ({"input_ids": [np.zeros((2, 2), int)]}, r"input_ids\[0\] has shape"),
        ({"input_ids": IDS, "loss_mask": IDS[:, :2]}, r"loss_mask has shape \[2, 2\].*\[2, 3\]"),
        ({"input_ids": IDS, "loss_mask": [[1, 1, 1], [1, 1, 1]]}, "same layout"),
        ({"input_ids": [[1, 2], [3]], "loss_mask": [[1], [1, 1]]}, "same layout"),
        ({"input_ids": [[1, 2], [3]], "attention_mask": [[1, 1], [1]]}, "no padding"),
        ({"input_ids": np.array([["a"]])}, "no place on the wire"),
        ([IDS], "give a dict or an object of class TrainingBatch"),
    ],
)
def test_a_wrong_batch_says_what_is_right(batch: object, complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        batch_to_proto(batch)  # type: ignore[arg-type]


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    ids = torch.arange(6).reshape(2, 3)
    log_probs = torch.full((2, 3), -1.5, dtype=torch.bfloat16, requires_grad=True)
    batch = {"input_ids": ids, "attention_mask": ids > 0, "old_log_probs_shifted": log_probs, "loss_mask": ids.t().t()}
    assert column(batch, "input_ids").tolist() == ids.tolist()
    assert column(batch, "input_ids").dtype == np.int64
    assert column(batch, "old_log_probs_shifted").dtype == np.float32
    assert column(batch, "old_log_probs_shifted").tolist() == [[-1.5] * 3] * 2
    rows = [torch.tensor([1, 2]), torch.tensor([3])]
    assert [row.tolist() for row in column({"input_ids": rows}, "input_ids")] == [[1, 2], [3]]
    advantages = torch.tensor([1.0, 2.0], dtype=torch.float64)
    assert column({"input_ids": ids, "advantages": advantages}, "advantages").tolist() == [[1] * 3, [2] * 3]


def test_bfloat16_keeps_its_bits() -> None:
    torch = pytest.importorskip("torch")
    value = torch.tensor([[1.0, -2.5], [3e38, 1e-40]], dtype=torch.bfloat16).t()
    message = tensor_pb2.Tensor()
    put_tensor(message, value, "x")
    assert message.dtype == tensor_pb2.DATA_TYPE_BFLOAT16
    assert list(message.shape) == [2, 2]
    assert message.data == value.contiguous().view(torch.uint8).numpy().tobytes()
    assert tensor_from_proto(message).tolist() == value.float().tolist()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float16", "float32", "float64"])
def test_tensors_come_back(dtype: str) -> None:
    for value in (np.ones((2, 0, 3), dtype), np.array(1, dtype), np.arange(6).reshape(2, 3).astype(dtype)):
        message = tensor_pb2.Tensor()
        put_tensor(message, value, "x")
        again = tensor_from_proto(message)
        assert (again.dtype, again.shape, again.tolist()) == (value.dtype, value.shape, value.tolist())
        assert again.flags.writeable


async def test_outputs_have_the_batchs_layout(client: AsyncClient) -> None:
    dense = await client.training.fwd_bwd(1, {"input_ids": IDS}, return_outputs=True)
    assert isinstance(dense.log_probs_shifted, np.ndarray)
    assert dense.log_probs_shifted.tolist() == IDS.tolist()
    ragged = await client.training.fwd_bwd(1, {"input_ids": [[1, 2], [3]]}, return_outputs=True)
    assert isinstance(ragged.log_probs_shifted, list)
    assert [row.tolist() for row in ragged.log_probs_shifted] == [[1, 2], [3]]
    assert ragged.log_probs_shifted[0].dtype == np.float32
    assert (await client.training.fwd_bwd(1, {"input_ids": IDS})).log_probs_shifted is None


async def test_a_small_batch_goes_in_its_call(fake: Fake, client: AsyncClient) -> None:
    await client.training.fwd_bwd(1, {"input_ids": IDS})
    assert fake.requests["FwdBwd"][0].HasField("batch")
    assert not fake.uploads
    assert not fake.requests["GetCapabilities"]


async def test_a_large_batch_is_uploaded(fake: Fake, plain_client: AsyncClient) -> None:
    ids = np.arange(2_500_000).reshape(2, -1)
    result = await plain_client.training.fwd_bwd(1, {"input_ids": ids}, return_outputs=True)
    assert fake.requests["FwdBwd"][0].batch_id == "0"
    assert not fake.requests["FwdBwd"][0].HasField("batch")
    assert np.array_equal(np.asarray(result.log_probs_shifted), ids.astype(np.float32))
    header = fake.requests["UploadBatch"][0]
    assert header.job_id == 1
    assert header.sha256 == hashlib.sha256(fake.uploads[0]).digest()
    await plain_client.training.fwd_bwd(1, {"input_ids": ids})
    assert len(fake.requests["GetCapabilities"]) == 1


async def test_a_server_with_a_low_limit_gets_uploads_earlier(fake: Fake, plain_client: AsyncClient) -> None:
    fake.max_message_bytes = 2 * 1024 * 1024
    ids = np.ones((2, 170_000), np.int32)
    await plain_client.training.fwd_bwd(1, {"input_ids": ids})
    assert fake.requests["FwdBwd"][0].batch_id == "0"


async def test_an_uploaded_batch_serves_several_calls(fake: Fake, client: AsyncClient) -> None:
    uploaded = await client.training.upload_batch(1, TrainingBatch(input_ids=IDS))
    for batch in (uploaded, uploaded.batch_id):
        result = await client.training.fwd_bwd(1, batch, return_outputs=True)
        assert np.asarray(result.log_probs_shifted).tolist() == IDS.tolist()
    assert len(fake.uploads) == 1
