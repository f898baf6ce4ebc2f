"""Errors as google.rpc.Status and back: nothing that a caller needs is lost, and all of it fits in the trailers."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import quote

import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from hypothesis import given
from hypothesis import strategies as st

from gradwire.server import errors as e
from gradwire.server.codec.status import from_status, to_status

METADATA = {"key": "value"}
SAMPLES: list[e.GradwireError] = [
    e.GradwireError("BROKEN", "text", metadata=METADATA),
    e.InvalidArgument([e.FieldViolation("a.b[0]", "is wrong"), e.FieldViolation("c", "too")], metadata=METADATA),
    e.NotFound("job", "7", "no job 7"),
    e.AlreadyExists("TAKEN", "text", metadata=METADATA),
    e.FailedPrecondition("STATE", "text", subject="job/1", metadata=METADATA),
    e.Aborted("OVERTAKEN", "text", metadata=METADATA),
    e.DeadlineExceeded("LATE", "text", metadata=METADATA),
    e.PermissionDenied("SCOPE", "text", metadata=METADATA),
    e.Unauthenticated("WHO", "text", metadata=METADATA),
    e.Unimplemented("NOT_HERE", "text", metadata=METADATA),
    e.ResourceExhausted("FULL", "text", retry_after=timedelta(seconds=1.5)),
    e.ResourceExhausted("NEVER_FITS", "text"),
    e.Unavailable("DRAINING", "text", retry_after=timedelta(milliseconds=10)),
    e.Unavailable("ENGINE_DEAD", "text"),
]


def facts(error: e.GradwireError) -> dict[str, object]:
    return {"class": type(error), "text": str(error), **vars(error)}


def wire_size(status: status_pb2.Status) -> int:
    """Bytes in HTTP/2 trailers, the message percent-encoded and the details in base64."""
    details = rpc_status.to_status(status).trailing_metadata
    return len(quote(status.message)) + sum(len(key) + -(-len(value) * 4 // 3) for key, value in details)


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: error.reason)
def test_an_error_comes_back_as_it_was(error: e.GradwireError) -> None:
    assert facts(from_status(to_status(error))) == facts(error)


def test_there_is_a_sample_of_each_class() -> None:
    assert {type(error) for error in SAMPLES} == {e.GradwireError, *e.GradwireError.__subclasses__()}


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: error.reason)
def test_every_error_has_a_reason_under_our_domain(error: e.GradwireError) -> None:
    info = error_details_pb2.ErrorInfo()
    assert to_status(error).details[0].Unpack(info)
    assert (info.domain, info.reason) == ("gradwire", error.reason)


def test_what_can_be_retried_says_when() -> None:
    for error in (e.Unavailable("X", "text"), e.ResourceExhausted("X", "text", retry_after=timedelta(seconds=2))):
        assert any(detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR) for detail in to_status(error).details)


@given(st.text(max_size=5000), st.integers(1, 300))
def test_the_trailers_hold_any_error(text: str, times: int) -> None:
    violations = [e.FieldViolation(f"prompts[{n}].text", text) for n in range(times)]
    for error in (
        e.InvalidArgument(violations),
        e.NotFound("checkpoint", text * times, text * times),
        e.FailedPrecondition("STATE", text * times, subject=text * times, metadata={"outcome": text * times}),
    ):
        status = to_status(error)
        assert wire_size(status) < 8000
        back = from_status(status)
        assert (type(back), back.reason) == (type(error), error.reason)


def test_a_cut_text_says_so_and_its_first_violations_are_whole() -> None:
    violations = [e.FieldViolation(f"prompts[{n}]", "is empty") for n in range(4096)]
    back = from_status(to_status(e.InvalidArgument(violations)))
    assert isinstance(back, e.InvalidArgument)
    assert 10 < len(back.violations) < 200
    assert back.violations[0] == violations[0]


def test_a_status_without_details_is_understood() -> None:
    error = from_status(status_pb2.Status(code=14, message="connection refused"))
    assert (type(error), error.reason, error.message) == (e.Unavailable, "UNKNOWN", "connection refused")
    bare = from_status(status_pb2.Status(code=3, message="bad"))
    assert isinstance(bare, e.InvalidArgument)
    assert bare.violations == (e.FieldViolation("", "bad"),)
