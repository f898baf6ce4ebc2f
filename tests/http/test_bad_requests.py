"""What the HTTP door refuses, and how it says so."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any

import pytest
from google.rpc import error_details_pb2

from gradwire.server.config import MIB
from gradwire.v1 import sampling_pb2, training_pb2
from tests.http.support import (
    CONNECT_JSON,
    CONNECT_PROTO,
    GENERATE,
    JSON,
    PREFIX,
    PROTO,
    STREAM,
    UPLOAD,
    detail,
    envelope,
    post,
    serving_http,
)
from tests.http.test_calls import upload
from tests.rpc.support import Served, small_batch, text_prompt, until

FWD_BWD = "/gradwire.v1.TrainingService/FwdBwd"
PROMPT = b'{"prompts": [{"text": "abc"}]}'


@pytest.mark.parametrize(
    ("path", "content_type"),
    [
        (GENERATE, "text/plain"),
        (GENERATE, ""),
        (GENERATE, "application/grpc"),
        (GENERATE, CONNECT_PROTO),
        (STREAM, PROTO),
        (UPLOAD, JSON),
    ],
)
async def test_a_wrong_content_type_names_the_right_ones(served: Served, path: str, content_type: str) -> None:
    answer = await post(served, path, PROMPT, content_type)
    assert (answer.status, answer.reason) == (415, "WRONG_CONTENT_TYPE")
    assert answer.headers["accept-post"].split(", ")[0] in answer.error["message"]


async def test_only_post(served: Served) -> None:
    for method in ("GET", "PUT", "OPTIONS"):
        answer = await post(served, GENERATE, method=method, content_type=JSON)
        assert (answer.status, answer.headers["allow"], answer.reason) == (405, "POST", "ONLY_POST")


@pytest.mark.parametrize(
    "path", ["/gradwire.v1.SamplingService/Nothing", "/", "/a%ff/b", "/gradwire.v1.AgentService/Generate"]
)
async def test_an_unknown_method_is_not_found(served: Served, path: str) -> None:
    answer = await post(served, path, b"{}", JSON)
    assert (answer.status, answer.error["code"], answer.reason) == (404, "unimplemented", "METHOD_NOT_SERVED")


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompts": [{"text": "abc"',
        b"[1, 2]",
        b'"text"',
        b"\xff\xfe",
        b'{"promtps": []}',
        b'{"prompts": 3}',
        b'{"jobId": "many"}',
        b'{"jobId": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
    ],
)
async def test_broken_json_is_the_callers_fault(served: Served, body: bytes) -> None:
    answer = await post(served, GENERATE, body, JSON)
    assert (answer.status, answer.reason) == (400, "NOT_A_MESSAGE")
    assert len(answer.body) < 5000


async def test_a_misspelt_field_is_named(served: Served) -> None:
    assert "promtps" in (await post(served, GENERATE, b'{"promtps": []}', JSON)).error["message"]


@pytest.mark.parametrize(
    ("method", "body", "field"),
    [
        (GENERATE, b'{"params": {"n": -1}}', "params.n"),
        (GENERATE, b'{"params": {"sed": 1}}', "params.sed"),
        (GENERATE, b'{"promtps": []}', "promtps"),
        (GENERATE, b'{"prompts": [{"text": "a"}, {"txt": "b"}]}', "prompts[1].txt"),
        (
            "/gradwire.v1.TrainingService/FwdBwd",
            b'{"batch": {"inputIds": {"dense": {"dtype": "INT"}}}}',
            "batch.inputIds.dense.dtype",
        ),
        (
            "/gradwire.v1.TrainingService/FwdBwd",
            b'{"batch": {"inputIds": {"dense": {"shape": ["x"]}}}}',
            "",
        ),  # json_format does not say
        (GENERATE, b"[1, 2]", ""),
    ],
)
async def test_json_that_cannot_be_read_names_the_field(served: Served, method: str, body: bytes, field: str) -> None:
    answer = await post(served, method, body, JSON)
    assert answer.reason == "NOT_A_MESSAGE"
    (violation,) = detail(answer.error, error_details_pb2.BadRequest()).field_violations
    assert violation.field == field


@pytest.mark.parametrize("body", [b"\xff" * 20, b"\x0a\x05ab"])
async def test_broken_protobuf_is_the_callers_fault(served: Served, body: bytes) -> None:
    assert (await post(served, GENERATE, body)).reason == "NOT_A_MESSAGE"
    assert (await post(served, STREAM, envelope(body), CONNECT_PROTO)).reason == "NOT_A_MESSAGE"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "BAD_ENVELOPE"),
        (b"\0\0", "TRUNCATED_ENVELOPE"),
        (envelope(b"{}")[:-1], "TRUNCATED_ENVELOPE"),
        (envelope(b"{}") + b"\0", "TRUNCATED_ENVELOPE"),
        (envelope(b"{}") * 2, "BAD_ENVELOPE"),
        (envelope(b"{}", flags=1), "BAD_ENVELOPE"),
        (envelope(b"{}", flags=2), "BAD_ENVELOPE"),
        (envelope(b"{}", flags=0x80), "BAD_ENVELOPE"),
        (PREFIX.pack(0, 0xFFFFFFFF), "MESSAGE_TOO_LARGE"),
    ],
)
async def test_broken_envelopes(served: Served, body: bytes, reason: str) -> None:
    assert (await post(served, STREAM, body, CONNECT_JSON)).reason == reason


async def test_rules_of_the_protos_name_the_field(served: Served) -> None:
    answer = await post(served, GENERATE, b'{"prompts": [{"text": "a"}], "params": {"n": 0}}', JSON)
    (violation,) = detail(answer.error, error_details_pb2.BadRequest()).field_violations
    assert (answer.status, violation.field) == (400, "params.n")
    debug = {d["type"]: d["debug"] for d in answer.error["details"]}
    assert debug["google.rpc.BadRequest"]["fieldViolations"][0]["field"] == "params.n"


@pytest.mark.parametrize(
    ("headers", "code", "reason"),
    [
        ({"connect-timeout-ms": "soon"}, "invalid_argument", "BAD_HEADER"),
        ({"connect-timeout-ms": "1" * 11}, "invalid_argument", "BAD_HEADER"),
        ({"connect-protocol-version": "2"}, "invalid_argument", "BAD_HEADER"),
        ({"content-encoding": "br"}, "unimplemented", "UNKNOWN_COMPRESSION"),
        ({"content-encoding": "gzip"}, "invalid_argument", "NOT_GZIP"),
        ({"host": "attacker.example"}, "permission_denied", "FOREIGN_HOST"),
    ],
)
async def test_bad_headers(served: Served, headers: dict[str, str], code: str, reason: str) -> None:
    answer = await post(served, GENERATE, PROMPT, JSON, headers)
    assert (answer.error["code"], answer.reason) == (code, reason)


async def test_half_a_gzip_and_one_and_a_half(served: Served) -> None:
    whole = gzip.compress(b"{}")
    for body, said in ((whole[:-1], "breaks off"), (whole + whole, "goes on behind its end")):
        answer = await post(served, GENERATE, body, JSON, {"content-encoding": "gzip"})
        assert (answer.status, answer.reason) == (400, "NOT_GZIP") and said in answer.error["message"]


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1:80", "[::1]:8080"])
async def test_loopback_names_are_ours(served: Served, name: str) -> None:
    assert (await post(served, GENERATE, PROMPT, JSON, {"host": name})).status == 200


# Sizes


async def test_a_message_over_the_cap_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async with serving_http(tmp_path, limits={"max_message_bytes": MIB}) as served:
        read = 0

        async def endless() -> Any:
            nonlocal read
            for _ in range(1000):
                read += MIB
                yield b" " * MIB

        zipped = {"content-encoding": "gzip"}
        requests: list[tuple[str, Any, str, dict[str, str]]] = [
            (GENERATE, b" " * (3 * MIB), JSON, {}),
            (GENERATE, endless(), JSON, {}),
            (GENERATE, gzip.compress(b" " * (50 * MIB)), JSON, zipped),
            (STREAM, PREFIX.pack(0, 3 * MIB), CONNECT_PROTO, {}),
        ]
        for path, body, kind, headers in requests:
            answer = await post(served, path, body, kind, headers)
            assert (answer.error["code"], answer.reason) == ("resource_exhausted", "MESSAGE_TOO_LARGE")
            assert "UploadBatch" in answer.error["message"]
            assert str(2 * MIB) in answer.error["message"]
        assert read < 100 * MIB


# Slow senders, and ones that leave


async def raw(served: Served, *parts: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which bytes were sent."""
    host, port = served.app.http_address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"".join(parts))
    await writer.drain()
    return reader, writer


def head(path: str, content_type: str, *, length: int | None = None) -> bytes:
    size = f"content-length: {length}" if length is not None else "transfer-encoding: chunked"
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\n{size}\r\n\r\n".encode()


async def test_a_body_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    async with serving_http(tmp_path, limits={"http_read_seconds": 0.1}) as served:
        for path, kind in ((GENERATE, JSON), (UPLOAD, CONNECT_PROTO)):
            reader, writer = await raw(served, head(path, kind, length=1000), b"{")
            answer = await asyncio.wait_for(reader.readuntil(b"BODY_TOO_SLOW"), 10)
            assert b"deadline_exceeded" in answer
            writer.close()
        assert served.app._admission.active == 0


async def test_a_head_that_does_not_come_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradwire.server.http.server._HEAD_S", 0.1)
    for begin in (b"", b"POST / HTTP/1.1\r\nho"):
        reader, writer = await raw(served, begin)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
    # And so is a body that nobody reads, after the answer.
    reader, writer = await raw(served, head(GENERATE, "text/plain", length=10_000), b"x")
    assert b"415" in await asyncio.wait_for(reader.readuntil(b"\r\n"), 10)
    writer.write(b"x")
    await asyncio.wait_for(reader.read(), 10)
    writer.close()


async def test_an_upload_that_breaks_off_leaves_nothing_behind(served: Served) -> None:
    job = await served.training_job()
    messages = upload(job, small_batch().SerializeToString())
    data = b"".join(envelope(message.SerializeToString()) for message in messages[:2])
    _, writer = await raw(served, head(UPLOAD, CONNECT_PROTO), f"{len(data):x}\r\n".encode(), data, b"\r\n")
    await until(lambda: served.app._admission.active == 1)
    writer.close()
    await until(lambda: served.app._admission.active == 0)
    response = await served.training.UploadBatch(iter(messages))  # and there is room for all of it
    assert isinstance(response, training_pb2.UploadBatchResponse)


@pytest.mark.parametrize("path", [GENERATE, STREAM])
async def test_a_caller_that_leaves_frees_the_engine(served: Served, path: str) -> None:
    sampler = served.engines.samplers[0]
    sampler.token_gate = asyncio.Semaphore(1)
    body = PROMPT if path == GENERATE else b'{"prompt": {"text": "abcd"}}'
    _, writer = await raw(served, head(path, JSON, length=len(body)), body)
    await asyncio.wait_for(sampler.opened.wait(), 10)
    assert sampler.open
    writer.close()
    await until(lambda: not sampler.open)
    assert served.app._admission.active == 0


async def test_a_deadline_frees_the_engine_and_says_so(served: Served) -> None:
    sampler = served.engines.samplers[0]
    sampler.token_gate = asyncio.Semaphore(1)
    answer = await post(served, GENERATE, PROMPT, JSON, {"connect-timeout-ms": "150"})
    assert (answer.status, answer.error["code"], answer.reason) == (504, "deadline_exceeded", "CALL_TIMEOUT")
    assert not sampler.open
    request = sampling_pb2.GenerateStreamRequest(prompt=text_prompt("abcd")).SerializeToString()
    answer = await post(served, STREAM, envelope(request), CONNECT_PROTO, {"connect-timeout-ms": "150"})
    assert answer.error["code"] == "deadline_exceeded"
    assert not sampler.open


async def test_rubbish_is_no_request(served: Served) -> None:
    reader, writer = await raw(served, b"\x16\x03\x01 this is no HTTP\r\n\r\n")
    assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 400")
    writer.close()
    assert (await post(served, GENERATE, PROMPT, JSON)).status == 200
