"""GetActionStream on the wire: answers in turn, and the ends of a stream."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.duration_pb2 import Duration
from grpc import StatusCode, aio

from gradwire.client import AsyncClient
from gradwire.server.codec.value import decode_value, put_value
from gradwire.server.errors import InvalidArgument, ResourceExhausted
from gradwire.server.rpc.interceptors import around
from gradwire.server.rpc.request_streams import RequestStreams
from gradwire.server.rpc.shares import StreamShares
from gradwire.v1 import deployment_pb2
from gradwire.v1 import inference_pb2 as pb
from tests.engines.policy.support import box, linear, network, spec_of
from tests.rpc.support import Failure, Served, serving, until
from tests.rpc.test_auth import SECRETS, bearer, token
from tests.rpc.test_inference import bundle
from tests.rpc.test_tokens import create, revoke

NETWORK = network(box(2), "deterministic", box(1))
PATH = "/gradwire.v1.InferenceService/GetActionStream"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """A server with a policy, that waits for its calls as long as they take."""
    async with serving(tmp_path, limits={"drain_seconds": 600.0}) as running:
        await deploy(running)
        yield running
        running.app.hurry()


async def deploy(served: Served) -> None:

    request = deployment_pb2.DeployRequest(
        deployment_id="p", policy=deployment_pb2.PolicyBundle(bundle=bundle(served, "p", {"policy": NETWORK}))
    )
    await served.deployments.Deploy(request, metadata=bearer(SECRETS["admin"]))


def asked(*observation: float, **fields: Any) -> pb.GetActionStreamRequest:
    message = pb.GetActionStreamRequest(request=pb.GetActionRequest(**fields))
    put_value(message.request.observation, np.array(observation, np.float32))
    return message


def wanted(served: Served, *observation: float) -> Any:
    spec = spec_of(served.app.deployments.find("p").engine.manifest)  # type: ignore[union-attr]
    return linear(spec, {"obs": np.array([observation], np.float32)})["action"][0]


def action(response: Any) -> Any:
    return decode_value(response.response.action, "action")


async def ended(call: Any) -> Failure:
    with pytest.raises(aio.AioRpcError) as caught:
        await call.read()
    return Failure(caught.value)


async def test_each_request_is_answered_in_its_turn(served: Served) -> None:
    call = served.inference.GetActionStream()
    for number in range(3):
        await call.write(asked(number, 1.0))
        np.testing.assert_allclose(action(await call.read()), wanted(served, number, 1.0), rtol=1e-5)
    for number in range(20):  # ahead of their answers
        await call.write(asked(0.5, number))
    for number in range(20):
        np.testing.assert_allclose(action(await call.read()), wanted(served, 0.5, number), rtol=1e-5)
    await call.done_writing()
    assert await call.read() is aio.EOF and await call.code() is StatusCode.OK


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (asked(1.0, 2.0, 3.0), "observation"),
        (asked(1.0, float("nan")), "observation"),
        (pb.GetActionStreamRequest(), "request"),
        (pb.GetActionStreamRequest(request=pb.GetActionRequest()), "request.observation"),
        (asked(1.0, 2.0, deployment_id="x" * 201), "request.deployment_id"),
    ],
)
async def test_what_cannot_be_answered_ends_the_stream_after_the_answers_before(
    served: Served, monkeypatch: pytest.MonkeyPatch, bad: pb.GetActionStreamRequest, field: str
) -> None:
    monkeypatch.setattr(around, "_REFUSED_SENDS_SECONDS", 30.0)
    call = served.inference.GetActionStream()
    await call.write(asked(1.0, 2.0))
    await call.write(bad)
    assert action(await call.read()).shape == (1,)
    began = time.monotonic()
    failed = await ended(call)
    assert failed.code is StatusCode.INVALID_ARGUMENT and failed.fields == [field]
    assert time.monotonic() - began < 20.0, "at once, though the client could go on sending"


async def test_a_redeployment_is_seen_by_the_next_request(served: Served) -> None:

    call = served.inference.GetActionStream()
    await call.write(asked(1.0, 2.0))
    await call.read()
    await served.deployments.Undeploy(deployment_pb2.UndeployRequest(deployment_id="p"))
    await call.write(asked(1.0, 2.0))
    assert (await ended(call)).code is StatusCode.NOT_FOUND


async def test_a_stream_that_waits_does_not_hold_up_the_end_of_the_server(served: Served) -> None:
    waiting, busy = served.inference.GetActionStream(), served.inference.GetActionStream()
    engine: Any = served.app.deployments.find("p").engine
    act, gate, begun = engine.act, asyncio.Event(), asyncio.Event()

    async def slowly(*args: Any, **options: Any) -> Any:
        begun.set()
        await gate.wait()
        return await act(*args, **options)

    await waiting.write(asked(1.0, 2.0))
    await waiting.read()
    engine.act = slowly
    await busy.write(asked(3.0, 4.0))
    await begun.wait()
    stopping = asyncio.create_task(served.app.stop())
    assert await waiting.read() is aio.EOF and await waiting.code() is StatusCode.OK
    assert not stopping.done()
    gate.set()
    np.testing.assert_allclose(action(await busy.read()), wanted(served, 3.0, 4.0), rtol=1e-5)
    assert await busy.read() is aio.EOF and await busy.code() is StatusCode.OK
    await asyncio.wait_for(stopping, 20)


async def test_a_client_that_vanishes_leaves_no_stream(served: Served) -> None:
    active = served.app._metrics._active.labels(PATH)._value
    for _ in range(2):
        async with aio.insecure_channel(served.app.grpc_address) as channel:
            call = channel.stream_stream(PATH)()  # type: ignore[var-annotated]
            await call.write(asked(1.0, 2.0).SerializeToString())
            await call.read()
            assert active.get() == 1

    async def gone() -> bool:
        return bool(active.get() == 0)

    await until(gone)


async def test_a_token_that_ends_ends_the_stream_at_its_next_message(tmp_path: Path) -> None:
    async with serving(tmp_path, tokens=[token("admin")]) as guarded:
        await deploy(guarded)
        lifetime = Duration(nanos=700_000_000)  # a server may go on without a look for longer
        for life, reason in ((None, "TOKEN_REVOKED"), (lifetime, "TOKEN_EXPIRED")):
            token_id, secret = await create(guarded, lifetime=life)
            _, other = await create(guarded)
            call, goes_on = (guarded.inference.GetActionStream(metadata=bearer(each)) for each in (secret, other))
            for stream in (call, call, goes_on):
                await stream.write(asked(1.0, 2.0))
                await stream.read()
            if life:
                await asyncio.sleep(0.75)
            else:
                await revoke(guarded, token_id)
            for stream in (call, goes_on):
                await stream.write(asked(1.0, 2.0))
            failed = await ended(call)
            assert (failed.code, failed.reason) == (StatusCode.UNAUTHENTICATED, reason)
            assert action(await goes_on.read()).shape == (1,)
            goes_on.cancel()


async def test_a_tenant_holds_a_part_of_the_places(tmp_path: Path) -> None:
    tokens = [token("admin"), token("alice"), token("bob")]
    async with serving(tmp_path, tokens=tokens, limits={"max_calls_per_service": 8}) as guarded:
        await deploy(guarded)

        async def stream(name: str) -> Any:
            call = guarded.inference.GetActionStream(metadata=bearer(SECRETS[name]))
            await call.write(asked(1.0, 2.0))
            return call

        held = [await stream("alice") for _ in range(2)]
        for call in held:
            assert action(await call.read()).shape == (1,)
        failed = await ended(await stream("alice"))
        assert (failed.code, failed.reason) == (StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_STREAMS")
        assert failed.retry_after > 0
        others = await stream("bob")
        assert action(await others.read()).shape == (1,)
        async with AsyncClient(guarded.app.grpc_address, token=SECRETS["alice"]) as client:
            found = await client.inference.get_action(np.ones(2, np.float32), in_turn=True)
            assert np.asarray(found.action).shape == (1,)
        await held[0].done_writing()
        assert await held[0].read() is aio.EOF
        again = await stream("alice")
        assert action(await again.read()).shape == (1,)


def test_all_tenants_together_leave_places_for_calls() -> None:
    for places, most in [(1, 1), (2, 1), (3, 2), (8, 6), (4096, 3072)]:
        shares = StreamShares(places, "GetAction")
        with ExitStack() as held:
            for number in range(most):
                held.enter_context(shares.one(f"tenant-{number}"))
            with pytest.raises(ResourceExhausted, match="or call GetAction"), shares.one("another"):
                pass
        assert not shares._open


async def messages(queue: asyncio.Queue[int]) -> AsyncIterator[int]:
    while True:
        yield await queue.get()


async def test_a_stream_ends_that_nobody_asks_anything() -> None:
    queue: asyncio.Queue[int] = asyncio.Queue()
    streams = RequestStreams(idle_s=0.05)
    seen = []

    async def serve() -> None:
        with streams.each(messages(queue)) as stream:
            async for message in stream:
                seen.append(message)
                await asyncio.sleep(0.2)  # longer than it may wait: answering is not waiting

    task = asyncio.create_task(serve())
    for number in range(3):
        queue.put_nowait(number)
    await asyncio.wait_for(task, 10)
    assert seen == [0, 1, 2] and not streams.open
    assert task.cancelling() == 0


async def test_who_is_cancelled_while_waiting_stays_cancelled() -> None:
    streams = RequestStreams()

    async def serve() -> None:
        with streams.each(messages(asyncio.Queue())) as stream:
            async for _ in stream:
                raise AssertionError

    task = asyncio.create_task(serve())
    await asyncio.sleep(0.01)
    task.cancel()
    streams.dismiss()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not streams.open


async def test_who_may_not_call_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the client's first write and the refusal meet."""
    monkeypatch.setattr(around, "_REFUSED_SENDS_SECONDS", 30.0)
    async with serving(tmp_path, tokens=[token("admin")]) as guarded:
        for _ in range(30):
            call = guarded.inference.GetActionStream()
            began = time.monotonic()
            await call.write(asked(1.0, 2.0))
            failed = await ended(call)
            assert (failed.code, failed.reason) == (StatusCode.UNAUTHENTICATED, "TOKEN_MISSING")
            assert time.monotonic() - began < 20.0


@pytest.mark.parametrize("bad", [None, asked(1.0, 2.0, 3.0)])
async def test_who_writes_ahead_is_told_why_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: pb.GetActionStreamRequest | None
) -> None:
    """Refused at once, or for the first request, while the client still writes."""
    monkeypatch.setattr(around, "_PAUSE_SECONDS", 0.2)  # a busy machine pauses, too
    async with serving(tmp_path, tokens=[token("admin"), token("alice")]) as guarded:
        await deploy(guarded)
        for _ in range(5):
            call = guarded.inference.GetActionStream(metadata=bearer(SECRETS["alice"]) if bad else None)
            for _ in range(100):
                await call.write(bad or asked(1.0, 2.0))
            failed = await ended(call)
            assert failed.code is (StatusCode.INVALID_ARGUMENT if bad else StatusCode.UNAUTHENTICATED)


@pytest.mark.parametrize("refused", [False, True])
async def test_what_is_written_to_a_client_that_has_vanished_is_no_error(
    served: Served, caplog: pytest.LogCaptureFixture, refused: bool
) -> None:
    engine: Any = served.app.deployments.find("p").engine
    act, begun, over = engine.act, asyncio.Event(), asyncio.Event()

    async def regardless(*args: Any, **options: Any) -> Any:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(30)
        over.set()
        if refused:
            raise InvalidArgument.at("observation", "is odd")
        return await act(*args, **options)

    engine.act = regardless
    async with aio.insecure_channel(served.app.grpc_address) as channel:
        await channel.stream_stream(PATH)().write(asked(1.0, 2.0).SerializeToString())  # type: ignore[arg-type]
        await begun.wait()
    await asyncio.wait_for(over.wait(), 20)
    active = served.app._metrics._active.labels(PATH)._value

    async def gone() -> bool:
        return bool(active.get() == 0)

    await until(gone)
    await asyncio.sleep(0.05)  # grpc.aio's own last words
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
