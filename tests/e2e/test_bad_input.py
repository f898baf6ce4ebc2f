"""Bad input gets a code, a field and a fix; the server lives on and the next good call works."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
import numpy as np
import pytest
from google.rpc import error_details_pb2, status_pb2

from gradwire.client import Client, FailedPreconditionError, InvalidArgumentError, NotFoundError
from gradwire.v1 import (
    job_pb2,
    job_pb2_grpc,
    sampling_params_pb2,
    sampling_pb2,
    sampling_pb2_grpc,
    tensor_pb2,
    training_pb2,
    training_pb2_grpc,
)
from tests.e2e.conftest import TrainerFactory
from tests.serving import ServerProcess

INT32, FLOAT32 = tensor_pb2.DATA_TYPE_INT32, tensor_pb2.DATA_TYPE_FLOAT32
MAX = 2**63 - 1


def prompt(**content: Any) -> sampling_params_pb2.Prompt:
    return sampling_params_pb2.Prompt(**content)


def ids(*tokens: int) -> bytes:
    return np.array(tokens, dtype="<i4").tobytes()


BAD_PROMPTS = {
    "empty text": (prompt(text=""), "prompts[0].text"),
    "no content": (prompt(), "prompts[0].content"),
    "half a token": (prompt(token_ids=b"\0\0\0"), "prompts[0].token_ids"),
    "beyond the vocabulary": (prompt(token_ids=ids(1, 260)), "prompts[0].token_ids[1]"),
    "negative token": (prompt(token_ids=ids(-1)), "prompts[0].token_ids[0]"),
    "longer than the model": (prompt(token_ids=ids(*[1] * 2048)), "prompts[0].token_ids"),
    "ten megabytes": (prompt(text="x" * 10_000_000), "prompts[0].text"),
    "no messages": (prompt(chat=sampling_params_pb2.Chat()), "prompts[0].chat.messages"),
}
BAD_PARAMS: dict[str, tuple[dict[str, Any], str]] = {
    "n = 0": ({"n": 0}, "params.n"),
    "n huge": ({"n": 2**31}, "params.n"),
    "NaN temperature": ({"temperature": float("nan")}, "params.temperature"),
    "negative temperature": ({"temperature": -1}, "params.temperature"),
    "infinite temperature": ({"temperature": float("inf")}, "params.temperature"),
    "top_p = 0": ({"top_p": 0}, "params.top_p"),
    "min_p above 1": ({"min_p": 1.5}, "params.min_p"),
    "max_tokens = 0": ({"max_tokens": 0}, "params.max_tokens"),
    "min above max": ({"min_tokens": 9, "max_tokens": 8}, "params.min_tokens"),
    "n at temperature 0": ({"n": 2, "temperature": 0}, "params.n"),
    "penalty out of range": ({"presence_penalty": 3}, "params.presence_penalty"),
    "log-probs over the cap": ({"log_probs": 21}, "params.log_probs"),
    "empty stop": ({"stop": [""]}, "params.stop[0]"),
    "too many stops": ({"stop": ["x"] * 65}, "params.stop"),
    "stop token beyond": ({"stop_token_ids": [-1]}, "params.stop_token_ids[0]"),
    "broken regex": ({"structured_output": {"regex": "("}}, "params.structured_output"),
    "schema of a billion items": (
        {"structured_output": {"json_schema": '{"type": "array", "minItems": 1000000000}'}},
        "params.structured",
    ),
    "schema with a broken pattern": (
        {"structured_output": {"json_schema": '{"type": "object", "patternProperties": {"(": {}}}'}},
        "params.structured_output",
    ),
    "broken schema": ({"structured_output": {"json_schema": "{not json"}}, "params.structured_output"),
}


@pytest.fixture(scope="module")
def channel(server: ServerProcess) -> Any:
    with grpc.insecure_channel(server.address) as open_channel:
        yield open_channel


def refused(call: Callable[[], Any], field: str, code: str = "INVALID_ARGUMENT") -> str:
    """The message of a call that must be refused at `field`."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    assert error.code().name == code, error.details()
    status = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        for target in (info, bad):
            if detail.Is(target.DESCRIPTOR):
                detail.Unpack(target)
    assert info.reason and info.domain == "gradwire"
    if code == "INVALID_ARGUMENT":
        found = {violation.field: violation.description for violation in bad.field_violations}
        assert any(name == field or name.startswith((field + ".", field + "[")) for name in found), found
        assert all(found.values())
    return str(error.details())


@pytest.mark.parametrize("name", BAD_PROMPTS)
def test_prompts(channel: Any, client: Client, name: str) -> None:
    bad, field = BAD_PROMPTS[name]
    stub = sampling_pb2_grpc.SamplingServiceStub(channel)
    request = sampling_pb2.GenerateRequest(prompts=[bad], params=sampling_params_pb2.SamplingParams(max_tokens=2))
    refused(lambda: stub.Generate(request), field)
    stream = sampling_pb2.GenerateStreamRequest(prompt=bad)
    refused(lambda: list(stub.GenerateStream(stream)), field.replace("prompts[0]", "prompt"))
    assert client.sampling.generate("fine", max_tokens=1).results


@pytest.mark.parametrize("name", BAD_PARAMS)
def test_sampling_params(channel: Any, client: Client, name: str) -> None:
    values, field = BAD_PARAMS[name]
    stub = sampling_pb2_grpc.SamplingServiceStub(channel)
    params = sampling_params_pb2.SamplingParams(**values)
    refused(lambda: stub.Generate(sampling_pb2.GenerateRequest(prompts=[prompt(text="x")], params=params)), field)
    assert client.sampling.generate("fine", max_tokens=1).results


def test_more_completions_than_a_call_takes(channel: Any) -> None:
    params = sampling_params_pb2.SamplingParams(n=1024, max_tokens=1)
    request = sampling_pb2.GenerateRequest(prompts=[prompt(text="x")] * 17, params=params)
    refused(partial(sampling_pb2_grpc.SamplingServiceStub(channel).Generate, request), "params.n")


def column(data: bytes, *shape: int, dtype: int = INT32) -> tensor_pb2.BatchTensor:
    tensor = tensor_pb2.Tensor(dtype=dtype, shape=shape, data=data)  # type: ignore[arg-type]
    return tensor_pb2.BatchTensor(dense=tensor)


GOOD = column(ids(1, 2, 3, 4), 2, 2)
FLOATS = np.ones(4, dtype="<f4").tobytes()
RAGGED = tensor_pb2.RaggedTensor(dtype=INT32, data=ids(1, 2, 3), row_offsets=np.array([0, 5], dtype="<i8").tobytes())
BAD_BATCHES: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "batch.input_ids"),
    "bytes do not match": ({"input_ids": column(ids(1, 2, 3), 2, 2)}, "batch.input_ids.dense.data"),
    "product overflows": ({"input_ids": column(b"", MAX, MAX)}, "batch.input_ids.dense.shape"),
    "negative dimension": ({"input_ids": column(b"", -1, 2)}, "batch.input_ids.dense.shape"),
    "one dimension": ({"input_ids": column(ids(1, 2), 2)}, "batch.input_ids.dense.shape"),
    "no dtype": ({"input_ids": column(ids(1), 1, 1, dtype=0)}, "batch.input_ids.dense.dtype"),
    "float tokens": ({"input_ids": column(FLOATS, 2, 2, dtype=FLOAT32)}, "batch.input_ids"),
    "beyond the vocabulary": ({"input_ids": column(ids(1, 2, 3, 260), 2, 2)}, "batch.input_ids"),
    "beyond the model's positions": ({"input_ids": column(ids(*[1] * 2049), 1, 2049)}, "batch.input_ids"),
    "offsets beyond the data": ({"input_ids": tensor_pb2.BatchTensor(ragged=RAGGED)}, "batch.input_ids.ragged"),
    "mask of another shape": ({"input_ids": GOOD, "loss_mask": column(FLOATS, 4, 1, dtype=FLOAT32)}, "batch.loss_mask"),
    "mask on the last token": (
        {"input_ids": GOOD, "loss_mask": column(FLOATS, 2, 2, dtype=FLOAT32)},
        "batch.loss_mask",
    ),
    "empty mask": ({"input_ids": GOOD, "loss_mask": column(bytes(16), 2, 2, dtype=FLOAT32)}, "batch.loss_mask"),
    "attention of another shape": (
        {"input_ids": GOOD, "attention_mask": tensor_pb2.Tensor(dtype=INT32, shape=[4], data=ids(1, 1, 1, 1))},
        "batch.attention_mask",
    ),
    "attention with a gap": (
        {
            "input_ids": column(ids(1, 2, 3), 1, 3),
            "attention_mask": tensor_pb2.Tensor(dtype=INT32, shape=[1, 3], data=ids(1, 0, 1)),
        },
        "batch.attention_mask",
    ),
    "NaN advantages": (
        {"input_ids": GOOD, "advantages": column(np.full(4, np.nan, "<f4").tobytes(), 2, 2, dtype=FLOAT32)},
        "batch.advantages",
    ),
    "NaN old log-probs": (
        {"input_ids": GOOD, "old_log_probs_shifted": column(np.full(4, np.nan, "<f4").tobytes(), 2, 2, dtype=FLOAT32)},
        "batch.old_log_probs_shifted",
    ),
}


def test_batches(channel: Any, client: Client, make_trainer: TrainerFactory) -> None:
    trainer = make_trainer()
    stub = training_pb2_grpc.TrainingServiceStub(channel)
    before = {name: c.sha256 for name, c in client.weights.get_checksums(trainer).checksums.items()}
    good = {"input_ids": [[1, 2, 3]]}
    client.training.fwd_bwd(trainer, good, loss="cross_entropy")
    for name, (columns, field) in BAD_BATCHES.items():
        batch = training_pb2.TrainingBatch(**columns)
        request = training_pb2.FwdBwdRequest(job_id=trainer.job_id, batch=batch)
        assert refused(partial(stub.FwdBwd, request), field), name
    for loss, config, field in (
        ("grop", {}, "loss.name"),
        ("os.system", {}, "loss.name"),
        ("grpo", {"eps_clp": 0.2}, "loss.config"),
        ("grpo", {"eps_clip": "wide"}, "loss.config"),
        ("grpo", {"loss_agg_mode": "mean"}, "loss.config"),
        ("grpo", {"use_kl_loss": True}, "batch.ref_log_probs_shifted"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            client.training.fwd_bwd(trainer, good, loss=loss, loss_config=config)
        assert caught.value.field_violations[0][0].startswith(field), caught.value
    with pytest.raises(InvalidArgumentError, match="'grpo'"):
        client.training.fwd_bwd(trainer, good, loss="grop")

    # Nothing of all this was lost or added: one good call is still accumulated, exactly once.
    reference = make_trainer()
    client.training.fwd_bwd(reference, good, loss="cross_entropy")
    assert client.training.step(trainer).grad_norm == client.training.step(reference).grad_norm
    assert {name: c.sha256 for name, c in client.weights.get_checksums(trainer).checksums.items()} != before


def test_unknown_things(client: Client, make_trainer: TrainerFactory) -> None:
    trainer = make_trainer()
    with pytest.raises(NotFoundError, match="no job 999"):
        client.training.step(999)
    with pytest.raises(InvalidArgumentError, match="sampling job"):
        client.training.step(client.jobs.get())
    with pytest.raises(InvalidArgumentError, match="training job"):
        client.sampling.generate("x", job=trainer)
    with pytest.raises(NotFoundError, match="nowhere"):
        client.training.load_checkpoint(trainer, "nowhere")
    for name in ("../escape", "a/b", "/etc/passwd", ".hidden", "x" * 101, "ünïcode"):
        with pytest.raises(InvalidArgumentError) as caught:
            client.training.save_checkpoint(trainer, name=name)
        assert caught.value.field_violations[0][0] == "name"
    with pytest.raises((InvalidArgumentError, NotFoundError), match="smollm2"):
        client.jobs.create(training={"model": "smollm3"})
    with pytest.raises(FailedPreconditionError, match="SHARED_MEMORY"):
        client.weights.sync(trainer, transport="nccl")
    with pytest.raises(InvalidArgumentError, match="total_steps"):
        client.jobs.create(training={"scheduler": {"name": "cosine"}})


def test_bad_job_configs(channel: Any) -> None:
    stub = job_pb2_grpc.JobServiceStub(channel)
    for values, field in (
        ({"zero_stage": 4}, "training.zero_stage"),
        ({"dtype": "int4"}, "training.dtype"),
        ({"max_grad_norm": float("nan")}, "training.max_grad_norm"),
        ({"optimizer": {"name": "lion"}}, "training.optimizer.name"),
        ({"loss": "ppp"}, "training.loss"),
    ):
        request = job_pb2.CreateJobsRequest(training=job_pb2.TrainingJobConfig(**values))
        refused(partial(list, stub.CreateJobs(request)), field)


def test_sync_while_the_sampler_sleeps(client: Client, make_trainer: TrainerFactory) -> None:
    trainer = make_trainer()
    client.training.fwd_bwd(trainer, {"input_ids": [[1, 2, 3]]}, loss="cross_entropy")
    client.training.step(trainer, learning_rate=0.0)
    client.sampling.sleep()
    try:
        with pytest.raises(FailedPreconditionError, match=r"(?i)wake"):
            client.weights.sync(trainer)
    finally:
        client.sampling.wake()
    assert client.sampling.generate("fine", max_tokens=1).results
