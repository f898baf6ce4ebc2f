"""Statuses become exceptions that say what was wrong and what would be right."""

from __future__ import annotations

import grpc
import pytest
from google.rpc import error_details_pb2

from gradwire.client import (
    AsyncClient,
    GradwireError,
    InternalError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
    UnimplementedError,
)
from gradwire.client.config import RetryConfig
from gradwire.client.errors import BY_CODE
from tests.client.fake import Fake
from tests.client.wire import failure, retry_info


def test_every_code_has_a_class() -> None:
    assert set(BY_CODE) == {code.name for code in grpc.StatusCode if code.name != "OK"}
    for code, kind in BY_CODE.items():
        assert kind.code == code
        assert issubclass(kind, GradwireError)


async def test_bad_request_names_the_fields(fake: Fake, client: AsyncClient) -> None:
    bad = error_details_pb2.BadRequest(
        field_violations=[
            error_details_pb2.BadRequest.FieldViolation(field="params.top_p", description="must be above 0"),
            error_details_pb2.BadRequest.FieldViolation(field="params.n", description="at most 1024"),
        ]
    )
    info = error_details_pb2.ErrorInfo(reason="INVALID_FIELD", metadata={"limit": "1024"})
    fake.failures["Generate"] = [failure("INVALID_ARGUMENT", "params.top_p: must be above 0", info, bad)]
    with pytest.raises(InvalidArgumentError) as caught:
        await client.sampling.generate("hi")
    error = caught.value
    assert error.reason == "INVALID_FIELD"
    assert error.metadata == {"limit": "1024"}
    assert error.field_violations == (("params.top_p", "must be above 0"), ("params.n", "at most 1024"))
    assert error.method == "SamplingService/Generate"
    assert isinstance(error, ValueError)
    assert str(error) == (
        "SamplingService/Generate: INVALID_ARGUMENT [INVALID_FIELD] "
        "params.top_p: must be above 0; params.n: at most 1024"
    )


async def test_retry_after_and_correlation_id(fake: Fake, client: AsyncClient) -> None:
    info = error_details_pb2.ErrorInfo(reason="QUEUE_FULL")
    fake.failures["Generate"] = [failure("RESOURCE_EXHAUSTED", "the queue is full", info, retry_info(0.5))]
    with pytest.raises(ResourceExhaustedError, match=r"try again in 0\.5 s") as full:
        await client.sampling.generate("hi")
    assert full.value.retry_after == 0.5
    assert full.value.attempts == 1
    info = error_details_pb2.ErrorInfo(reason="INTERNAL", metadata={"correlation_id": "abc123"})
    fake.failures["Generate"] = [failure("INTERNAL", "an unexpected error", info)]
    with pytest.raises(InternalError, match="correlation id abc123") as bug:
        await client.sampling.generate("hi")
    assert bug.value.correlation_id == "abc123"


async def test_a_status_without_details(fake: Fake, client: AsyncClient) -> None:
    fake.failures["Generate"] = [failure("UNIMPLEMENTED", "")]
    with pytest.raises(UnimplementedError, match="the server gave no reason") as caught:
        await client.sampling.generate("hi")
    assert caught.value.reason == ""
    assert caught.value.field_violations == ()


async def test_damaged_details_do_not_hide_the_error(fake: Fake, client: AsyncClient) -> None:
    from gradwire.client._core.status import _read_details

    assert _read_details(b"\xff\xff\xff") == {}
    assert _read_details(None) == {}


async def test_connection_refused_says_where_and_what_to_do() -> None:
    async with AsyncClient("127.0.0.1:1", retry=RetryConfig(max_attempts=1)) as client:
        with pytest.raises(UnavailableError) as caught:
            await client.jobs.list()
    text = str(caught.value)
    assert "127.0.0.1:1" in text
    assert "refused" in text
    assert "gradwire serve" in text
    assert "GRADWIRE_ADDRESS" in text
    assert isinstance(caught.value, ConnectionError)


async def test_errors_keep_their_cause(fake: Fake, client: AsyncClient) -> None:
    fake.failures["Generate"] = [failure("ABORTED", "overtaken")]
    with pytest.raises(GradwireError) as caught:
        await client.sampling.generate("hi")
    assert isinstance(caught.value.__cause__, grpc.aio.AioRpcError)
