"""Actions that follow one another take turns on one stream, and whoever asks cannot tell."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest

from gradwire.client import AsyncClient, Client, DeadlineExceededError, InvalidArgumentError
from gradwire.client._core import connection, turns
from gradwire.client._core.alarm import Alarm
from gradwire.client._core.blocking import at_once
from gradwire.client._core.turns import BlockingTurns
from gradwire.client.arena import Agent, ArenaInferenceError
from gradwire.v1 import inference_pb2 as pb
from tests.client.waiting import until_sync
from tests.engines.policy.support import box, linear, network, spec_of
from tests.rpc.support import Served, serving, until
from tests.rpc.test_inference import bundle

ONCE, STREAM = (f"/gradwire.v1.InferenceService/{name}" for name in ("GetAction", "GetActionStream"))


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """A server with a policy."""
    async with serving(tmp_path, http="127.0.0.1:0") as running:
        async with AsyncClient(running.app.grpc_address) as client:
            name = bundle(running, "p", {"policy": network(box(2), "deterministic", box(1))})
            await client.deployments.deploy_policy("p", name)
        yield running


def wanted(served: Served, *observation: float) -> Any:
    spec = spec_of(served.app.deployments.find("p").engine.manifest)  # type: ignore[union-attr]
    return linear(spec, {"obs": np.array([observation], np.float32)})["action"][0]


def calls(served: Served, path: str) -> tuple[int, int]:
    """That are under way, and that have ended."""
    metrics = served.app._metrics
    ended = sum(
        int(sample.value)
        for family in metrics._duration.collect()
        for sample in family.samples
        if sample.name.endswith("_count") and sample.labels["rpc_method"] == path
    )
    return int(metrics._active.labels(path)._value.get()), ended


def slow(served: Served, seconds: float) -> None:
    """The next action takes so long."""
    engine: Any = served.app.deployments.find("p").engine
    act = engine.act

    async def once(*args: Any, **options: Any) -> Any:
        engine.act = act
        await asyncio.sleep(seconds)
        return await act(*args, **options)

    engine.act = once


async def test_an_agent_that_asks_again_and_again_holds_one_stream(served: Served) -> None:
    def play() -> None:
        with Agent(f"grpc://{served.app.grpc_address}") as agent:
            for number in range(6):
                action, _ = agent.get_action(np.array([number, 1.0], np.float32))
                np.testing.assert_allclose(np.asarray(action), wanted(served, number, 1.0), rtol=1e-5)
            assert calls(served, STREAM) == (1, 0)

    await asyncio.to_thread(play)
    assert calls(served, ONCE)[1] == 1, "the first went by itself"


async def test_an_agent_that_asks_now_and_then_holds_none(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradwire.client._core.turns._CLOSELY_S", 0.0)

    def play() -> None:
        with Agent(f"grpc://{served.app.grpc_address}") as agent:
            for _ in range(3):
                agent.get_action(np.zeros(2, np.float32))

    await asyncio.to_thread(play)
    assert calls(served, STREAM) == (0, 0) and calls(served, ONCE)[1] == 3


async def test_an_error_is_the_same_in_turn_and_costs_the_next_nothing(served: Served) -> None:
    def play() -> None:
        with Agent(f"grpc://{served.app.grpc_address}") as agent:
            with pytest.raises(ArenaInferenceError) as first:
                agent.get_action(np.zeros(3, np.float32))
            agent.get_action(np.zeros(2, np.float32))
            with pytest.raises(ArenaInferenceError) as second:
                agent.get_action(np.zeros(3, np.float32))
            assert str(second.value) == str(first.value) and second.value.status_code == 400
            assert second.value.field_violations == first.value.field_violations
            agent.get_action(np.zeros(2, np.float32))
            assert calls(served, STREAM) == (1, 1)

    await asyncio.to_thread(play)


async def test_a_late_answer_is_nobodys(served: Served) -> None:
    def play() -> None:
        with Agent(f"grpc://{served.app.grpc_address}") as agent:
            for _ in range(2):
                agent.get_action(np.zeros(2, np.float32))
            slow(served, 4.0)
            began = time.monotonic()
            with pytest.raises(ArenaInferenceError, match="timeout"):
                agent.get_action(np.array([7.0, 7.0], np.float32), timeout=0.2)
            assert time.monotonic() - began < 3.5
            action, _ = agent.get_action(np.array([1.0, 2.0], np.float32))
            np.testing.assert_allclose(np.asarray(action), wanted(served, 1.0, 2.0), rtol=1e-5)

    await asyncio.to_thread(play)


async def test_threads_of_one_agent_get_their_own_answers(served: Served) -> None:
    def play() -> None:
        with Agent(f"grpc://{served.app.grpc_address}") as agent, ThreadPoolExecutor(6) as threads:

            def ask(number: int) -> None:
                action, _ = agent.get_action(np.array([number, -number], np.float32))
                np.testing.assert_allclose(np.asarray(action), wanted(served, number, -number), rtol=1e-5)

            list(threads.map(ask, range(120)))

    await asyncio.to_thread(play)


async def test_closing_an_agent_ends_the_call_of_another_thread(served: Served) -> None:
    def play() -> None:
        agent = Agent(f"grpc://{served.app.grpc_address}")
        for _ in range(2):
            agent.get_action(np.zeros(2, np.float32))
        slow(served, 30.0)
        threading.Timer(0.3, agent.close).start()
        with pytest.raises(ArenaInferenceError):
            agent.get_action(np.zeros(2, np.float32))

    await asyncio.wait_for(asyncio.to_thread(play), 10)


async def test_asyncio_takes_turns_when_asked_to(served: Served) -> None:
    async with AsyncClient(served.app.grpc_address) as client:

        async def ask(number: int) -> None:
            result = await client.inference.get_action(np.array([number, 1.0], np.float32), in_turn=True)
            np.testing.assert_allclose(np.asarray(result.action), wanted(served, number, 1.0), rtol=1e-5)

        await asyncio.gather(*(ask(number) for number in range(20)))
        assert calls(served, STREAM) == (1, 0) and calls(served, ONCE) == (0, 0)
        with pytest.raises(InvalidArgumentError) as caught:
            await client.inference.get_action(np.zeros(3, np.float32), in_turn=True)
        assert caught.value.field_violations[0][0] == "observation"
        slow(served, 5.0)
        with pytest.raises(DeadlineExceededError, match="timeout="):
            await client.inference.get_action(np.zeros(2, np.float32), in_turn=True, timeout=0.2)
        slow(served, 5.0)
        cancelled = asyncio.create_task(ask(3))
        await asyncio.sleep(0.1)
        cancelled.cancel()
        await asyncio.gather(*(ask(number) for number in range(3)))
        with pytest.raises(asyncio.CancelledError):
            await cancelled


async def test_over_http_turns_are_calls_of_their_own(served: Served) -> None:
    async with AsyncClient(f"http://{served.app.http_address}") as client:
        result = await client.inference.get_action(np.array([1.0, 2.0], np.float32), in_turn=True)
        np.testing.assert_allclose(np.asarray(result.action), wanted(served, 1.0, 2.0), rtol=1e-5)
    assert calls(served, STREAM) == (0, 0)


class Fickle(grpc.GenericRpcHandler):
    """Answers one request a stream, and ends it with OK, as a server does that has waited long enough."""

    def __init__(self, known: bool = True) -> None:
        self.known = known
        self.streams = 0

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        async def once(request: Any, context: Any) -> bytes:
            return pb.GetActionResponse(action=_tensor()).SerializeToString()

        async def stream(requests: Any, context: Any) -> Any:
            self.streams += 1
            async for _ in requests:
                yield pb.GetActionStreamResponse(response=pb.GetActionResponse(action=_tensor())).SerializeToString()
                return

        async def unknown(request: Any, context: Any) -> None:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "an older server")

        if details.method == ONCE:
            return grpc.unary_unary_rpc_method_handler(once)
        if not self.known:
            return grpc.unary_unary_rpc_method_handler(unknown)
        return grpc.stream_stream_rpc_method_handler(stream)


def _tensor() -> pb.Value:
    return pb.Value(tensor={"dtype": "DATA_TYPE_FLOAT32", "shape": [1], "data": b"\0\0\0\0"})


@pytest.mark.parametrize(("known", "streams"), [(True, 5), (False, 0)])
async def test_a_stream_that_has_ended_is_begun_anew_and_one_that_is_not_known_is_not_asked_for(
    known: bool, streams: int
) -> None:
    server, fickle = grpc.aio.server(), Fickle(known)
    server.add_generic_rpc_handlers((fickle,))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()

    def play() -> None:
        with Client(address) as client:
            for _ in range(5):
                client.inference.get_action(np.zeros(1, np.float32), in_turn=True, timeout=10)

    try:
        await asyncio.to_thread(play)
    finally:
        await server.stop(0)
    assert fickle.streams == streams


@pytest.mark.parametrize("clock", [connection, turns], ids=["client", "agent"])
async def test_a_server_without_room_for_a_stream_is_asked_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Any
) -> None:
    async with serving(tmp_path, limits={"max_calls_per_service": 4}) as served, AsyncExitStack() as stack:
        client = await stack.enter_async_context(AsyncClient(served.app.grpc_address))
        name = bundle(served, "p", {"policy": network(box(2), "deterministic", box(1))})
        await client.deployments.deploy_policy("p", name)
        agent = await asyncio.to_thread(Agent, f"grpc://{served.app.grpc_address}")
        stack.callback(agent.close)

        async def act() -> None:
            for _ in range(2):  # an agent's second one follows the first closely
                if clock is connection:
                    await client.inference.get_action(np.zeros(2, np.float32), in_turn=True)
                else:
                    await asyncio.to_thread(agent.get_action, np.zeros(2, np.float32))

        another = served.inference.GetActionStream()
        await until(lambda: calls(served, STREAM)[0] == 1)
        await act()
        assert calls(served, STREAM) == (1, 1) and calls(served, ONCE)[1] == 2
        another.cancel()
        await until(lambda: calls(served, STREAM)[0] == 0)
        await act()
        assert calls(served, STREAM) == (0, 2) and calls(served, ONCE)[1] == 4  # not so soon
        monkeypatch.setattr(clock, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 60.0))
        await act()
        assert calls(served, STREAM) == (1, 2)


async def test_a_script_that_closes_nothing_ends(served: Served) -> None:
    script = f"""
import numpy as np
from gradwire.client.arena import Agent
agent = Agent("grpc://{served.app.grpc_address}")
for _ in range(3):
    agent.get_action(np.zeros(2, np.float32))
print("done")
"""
    run = [sys.executable, "-c", script]
    ended = await asyncio.to_thread(subprocess.run, run, capture_output=True, text=True, timeout=20, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


async def test_a_forked_process_is_told_at_once(served: Served) -> None:
    script = f"""
import os
import numpy as np
from gradwire.client.arena import Agent
agent = Agent("grpc://{served.app.grpc_address}", timeout=10.0)
for _ in range(3):
    agent.get_action(np.zeros(2, np.float32))
child = os.fork()
if not child:
    try:
        agent.get_action(np.zeros(2, np.float32))
    except RuntimeError as error:
        os._exit(7 if "forked" in str(error) else 8)
    os._exit(9)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
agent.get_action(np.zeros(2, np.float32))
"""
    run = [sys.executable, "-c", script]
    ended = await asyncio.to_thread(subprocess.run, run, capture_output=True, text=True, timeout=20, check=False)
    assert (ended.returncode, ended.stdout) == (0, "7\n"), ended.stderr


async def test_the_wait_for_a_turn_counts(served: Served) -> None:
    def play() -> None:
        with Agent(f"grpc://{served.app.grpc_address}") as agent, ThreadPoolExecutor(1) as threads:
            agent.get_action(np.zeros(2, np.float32))
            inference, taken = agent._async._arrays, threading.Event()
            slow(served, 3.0)

            def ask(timeout: float) -> None:
                taken.set()
                at_once(inference.get_action(np.zeros(2, np.float32), in_turn=True, timeout=timeout))

            first = threads.submit(ask, 20.0)
            assert taken.wait(5)
            time.sleep(0.1)
            began = time.monotonic()
            with pytest.raises(DeadlineExceededError):
                ask(0.2)
            assert time.monotonic() - began < 2.0
            first.result()

    await asyncio.to_thread(play)


class Interrupted:
    """A call that Ctrl-C interrupts while its first answer is awaited."""

    def __init__(self, requests: Iterator[bytes]) -> None:
        self.requests = requests
        self.cancelled = False

    def __next__(self) -> bytes:
        if next(self.requests) == b"first":
            raise KeyboardInterrupt
        return b"answer"

    def is_active(self) -> bool:
        return not self.cancelled

    def cancel(self) -> None:
        self.cancelled = True


def test_an_interrupted_turn_is_not_answered_to_the_next() -> None:
    begun: list[Interrupted] = []

    def begin(requests: Iterator[bytes]) -> Interrupted:
        begun.append(Interrupted(requests))
        return begun[-1]

    turns = BlockingTurns(begin)
    with pytest.raises(KeyboardInterrupt):
        turns.ask(b"first", None)
    assert turns.ask(b"second", None) == b"answer"
    assert [call.cancelled for call in begun] == [True, False]


class Bell:
    """Counts."""

    def __init__(self) -> None:
        self.rung = threading.Event()
        self.times = 0

    def ring(self) -> None:
        self.times += 1
        self.rung.set()


def test_an_alarm_rings_once_and_only_when_it_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradwire.client._core.alarm._QUIET_S", 0.05)
    bell = Bell()
    alarm = Alarm(bell.ring)
    for _ in range(50):
        alarm.set(0.6)
        time.sleep(0.02)
    alarm.clear()
    until_sync(lambda: alarm._wakes is None)  # its thread has ended
    assert bell.times == 0
    alarm.set(30.0)
    alarm.set(0.02)  # earlier than what its thread waits for
    assert bell.rung.wait(5)
    time.sleep(0.05)
    assert bell.times == 1
