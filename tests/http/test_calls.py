"""Every RPC answers over HTTP as it does over gRPC: in protobuf and in JSON, unary and in streams."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import re
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc import StatusCode, aio
from grpc_health.v1 import health_pb2

from gradwire.v1 import sampling_pb2, training_pb2
from tests.http.support import (
    CONNECT_JSON,
    CONNECT_PROTO,
    GENERATE,
    JSON,
    PROTO,
    STREAM,
    UPLOAD,
    Answer,
    envelope,
    post,
)
from tests.rpc.support import Failure, Served, small_batch, text_prompt
from tests.rpc.test_coverage import METHODS

ENDLESS = {"WatchJob", "WatchRollouts"}


def request_of(method: MethodDescriptor) -> Any:
    """A request that is worth an answer."""
    prompt = text_prompt("abc")
    texts = {
        "Generate": sampling_pb2.GenerateRequest(prompts=[prompt]),
        "GenerateStream": sampling_pb2.GenerateStreamRequest(prompt=prompt),
        "LogProbs": sampling_pb2.LogProbsRequest(items=[sampling_pb2.ScoreItem(prompt=prompt)]),
        "FwdBwd": training_pb2.FwdBwdRequest(batch=small_batch()),
    }
    return texts.get(method.name) or GetMessageClass(method.input_type)()


def plain(text: str) -> str:
    """Without what differs from call to call."""
    return re.sub(r"[0-9a-f]{32}|\d+", "*", text)


async def over_grpc(served: Served, method: MethodDescriptor, request: Any) -> tuple[str, list[str]]:
    """The code and text of a call's end, and the kinds of its messages or details."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    kind = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    channel: Any = served.channel
    stub = getattr(channel, kind)(path, type(request).SerializeToString)
    call = stub(iter([request]) if method.client_streaming else request, timeout=10)
    try:
        if not method.server_streaming:
            return "ok", [str(len(await call) > 0)]
        got = await seen_at_once(call) if method.name in ENDLESS else [message async for message in call]
        call.cancel()
        return "ok", [str(len(message) > 0) for message in got]
    except aio.AioRpcError as error:
        failed = Failure(error)
        return f"{failed.code.name}: {plain(failed.text)}", list(failed.details)


async def seen_at_once(call: Any) -> list[bytes]:
    """The first message of a stream that goes on; none when there is nothing to say yet."""
    try:
        return [await asyncio.wait_for(call.read(), 1.0)]
    except TimeoutError:
        return []


async def over_http(served: Served, method: MethodDescriptor, request: Any, coding: str) -> tuple[str, list[str]]:
    """The same, of a call by Connect."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    streams = method.client_streaming or method.server_streaming
    data = request.SerializeToString() if coding == "proto" else json_format.MessageToJson(request).encode()
    kind = f"application/{'connect+' if streams else ''}{coding}"
    headers = {"connect-timeout-ms": "1000" if method.name in ENDLESS else "10000"}
    answer = await post(served, path, envelope(data) if streams else data, kind, headers)
    ended_well = answer.status == 200 and (not streams or json.loads(answer.envelopes[-1][1]) == {})
    if ended_well or method.name in ENDLESS:
        bodies = [body for _, body in answer.envelopes[:-1]] if method.server_streaming else [answer.body]
        bodies = list(answer.messages) if streams and not method.server_streaming else bodies
        return "ok", [str(body not in (b"", b"{}")) for body in bodies]
    error = answer.error
    code = error["code"].upper().replace("CANCELED", "CANCELLED")
    return f"{code}: {plain(error['message'])}", [detail["type"] for detail in error["details"]]


@pytest.mark.parametrize("coding", ["proto", "json"])
async def test_every_method_ends_over_http_as_it_does_over_grpc(served: Served, coding: str) -> None:
    await served.training_job()
    for _, method in METHODS:
        request = request_of(method)
        expected = await over_grpc(served, method, request)
        assert await over_http(served, method, request, coding) == expected, method.full_name


async def test_generate_in_both_forms(served: Served) -> None:
    request = sampling_pb2.GenerateRequest(prompts=[text_prompt("abc")])
    answer = await post(served, GENERATE, request.SerializeToString())
    assert (answer.status, answer.headers["content-type"]) == (200, PROTO)
    assert sampling_pb2.GenerateResponse.FromString(answer.body).results[0].completions[0].text == "cba"
    answer = await post(served, GENERATE, b'{"prompts": [{"text": "abc"}]}', "application/json; charset=utf-8")
    assert (answer.status, answer.headers["content-type"]) == (200, JSON)
    result = answer.json["results"][0]["completions"][0]
    assert (result["text"], result["finishReason"]) == ("cba", "FINISH_REASON_LENGTH")


def stream_of(answer: Answer, coding: str) -> list[Any]:
    read = sampling_pb2.GenerateStreamResponse.FromString
    if coding == "json":
        return [json_format.Parse(data, sampling_pb2.GenerateStreamResponse()) for data in answer.messages]
    return [read(data) for data in answer.messages]


@pytest.mark.parametrize("coding", ["proto", "json"])
async def test_a_stream_is_the_same_as_over_grpc(served: Served, coding: str) -> None:
    request = sampling_pb2.GenerateStreamRequest(prompt=text_prompt("abcd"))
    expected = [message async for message in served.sampling.GenerateStream(request)]
    data = request.SerializeToString() if coding == "proto" else json_format.MessageToJson(request).encode()
    answer = await post(served, STREAM, envelope(data), f"application/connect+{coding}")
    assert answer.headers["content-type"] == f"application/connect+{coding}"
    assert said(stream_of(answer, coding)) == said(expected)


def said(messages: list[Any]) -> tuple[Any, bytes, Any]:
    """Start, tokens and end: how many deltas there are, and what travels with them, depends on time."""
    tokens = b"".join(part.token_ids for message in messages for part in message.delta.completions)
    return messages[0].start, tokens, messages[-1].end


async def test_a_stream_for_terminals_is_server_sent_events(served: Served) -> None:
    answer = await post(served, STREAM, b'{"prompt": {"text": "ab"}}', JSON)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    *events, end, empty = answer.body.decode().split("\n\n")
    assert (end, empty) == ("event: end\ndata: {}", "")
    messages = [json.loads(event.removeprefix("data: ")) for event in events]
    assert "start" in messages[0] and messages[-1]["end"]["usage"]["completionTokens"] == "2"
    answer = await post(served, STREAM, b'{"prompt": {"text": ""}}', JSON)  # fails before it begins
    assert (answer.status, answer.error["code"]) == (400, "invalid_argument")


async def test_an_error_in_the_middle_of_events_is_an_event(served: Served) -> None:
    served.engines.samplers[0].token_gate = asyncio.Semaphore(1)
    answer = await post(served, STREAM, b'{"prompt": {"text": "abcd"}}', JSON, {"connect-timeout-ms": "200"})
    *_, last, _ = answer.body.decode().split("\n\n")
    name, data = last.split("\n")
    assert (answer.status, name) == (200, "event: error")
    assert json.loads(data.removeprefix("data: "))["code"] == "deadline_exceeded"


def upload(job_id: int, data: bytes, pieces: int = 3) -> list[training_pb2.UploadBatchRequest]:
    header = training_pb2.UploadHeader(job_id=job_id, total_bytes=len(data), sha256=hashlib.sha256(data).digest())
    size = -(-len(data) // pieces)
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    return [
        training_pb2.UploadBatchRequest(header=header),
        *(training_pb2.UploadBatchRequest(chunk=chunk) for chunk in chunks),
    ]


async def test_an_upload_is_trained_on(served: Served) -> None:
    job = await served.training_job()
    messages = upload(job, small_batch().SerializeToString())
    body = b"".join(envelope(message.SerializeToString()) for message in messages)
    (data,) = (await post(served, UPLOAD, body, CONNECT_PROTO)).messages
    batch_id = training_pb2.UploadBatchResponse.FromString(data).batch_id
    request = json.dumps({"jobId": job, "batchId": batch_id, "loss": {"name": "cross_entropy"}}).encode()
    answer = await post(served, "/gradwire.v1.TrainingService/FwdBwd", request, JSON)
    assert (answer.status, answer.json["numTokens"]) == (200, "6")


async def test_operations_happen_once_and_in_order(served: Served) -> None:
    job = await served.training_job()
    rows = json_format.MessageToDict(small_batch())
    fwd_bwd, step = "/gradwire.v1.TrainingService/FwdBwd", "/gradwire.v1.TrainingService/Step"

    async def call(path: str, identity: dict[str, Any], **fields: Any) -> Answer:
        body = json.dumps({"jobId": job, "operation": identity, **fields}).encode()
        return await post(served, path, body, JSON, {"connect-timeout-ms": "400"})

    # A gap is told before the deadline ends the call.
    early = await call(step, {"requestId": "s", "sequenceNumber": 2})
    assert (early.status, early.reason) == (400, "SEQUENCE_GAP")
    for _ in range(2):
        assert (await call(fwd_bwd, {"requestId": "f", "sequenceNumber": 1}, batch=rows)).status == 200
    first, again = [await call(step, {"requestId": "s", "sequenceNumber": 2}) for _ in range(2)]
    assert first.json == again.json
    other = await call(step, {"requestId": "s", "sequenceNumber": 2}, learningRate=0.5)
    assert (other.status, other.reason) == (409, "REQUEST_ID_REUSED")
    assert served.engines.trainers[0].applied == ["fwd_bwd", "step"]


async def test_gzip_is_understood(served: Served) -> None:
    request = sampling_pb2.GenerateRequest(prompts=[text_prompt("abc")]).SerializeToString()
    answer = await post(served, GENERATE, gzip.compress(request), headers={"content-encoding": "gzip"})
    assert answer.status == 200
    request = sampling_pb2.GenerateStreamRequest(prompt=text_prompt("abc")).SerializeToString()
    headers = {"connect-content-encoding": "gzip"}
    for body in (envelope(gzip.compress(request), 1), envelope(request)):
        assert (await post(served, STREAM, body, CONNECT_PROTO, headers)).messages


async def test_health_is_served_too(served: Served) -> None:
    check = "/grpc.health.v1.Health/Check"
    assert (await post(served, check, b"{}", JSON)).json == {"status": "SERVING"}
    answer = await post(served, check, b'{"service": "nothing"}', JSON)
    assert (answer.status, answer.error["code"]) == (404, "not_found")
    assert health_pb2.DESCRIPTOR.services_by_name["Health"].full_name == "grpc.health.v1.Health"


async def test_calls_are_counted_with_those_of_grpc(served: Served) -> None:
    await post(served, GENERATE, b'{"prompts": [{"text": "abc"}]}', JSON)
    await served.sampling.Generate(sampling_pb2.GenerateRequest(prompts=[text_prompt("abc")]))
    await post(served, "/gradwire.v1.Nothing/AtAll", b"{}", JSON)
    text = (await post(served, "/metrics", method="GET")).body.decode()
    labels = f'rpc_method="{GENERATE}",rpc_response_status_code="OK"'
    assert f"rpc_server_call_duration_seconds_count{{{labels}}} 2.0" in text
    assert "AtAll" not in text


async def test_a_bug_shows_none_of_its_text(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served.engines.samplers[0].generate_error = RuntimeError("secret path /etc/passwd")
    answer = await post(served, GENERATE, b'{"prompts": [{"text": "abc"}]}', JSON)
    assert (answer.status, answer.error["code"], answer.reason) == (500, "internal", "INTERNAL")
    assert b"passwd" not in answer.body
    stream = await post(served, STREAM, envelope(b'{"prompt": {"text": "ab"}}'), CONNECT_JSON)
    assert stream.error["code"] == StatusCode.INTERNAL.name.lower()
