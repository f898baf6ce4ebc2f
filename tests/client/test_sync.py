"""The sync client: from threads, inside a running loop, interrupted, dropped, and at the process's end."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from gradwire.client import CallCancelledError, Client, JobProgress, NotFoundError
from gradwire.client._core.loop import shared_loop
from tests.client.fake import Fake
from tests.client.test_streams import two_deltas
from tests.client.waiting import until_sync
from tests.client.wire import failure


def test_calls_and_errors(sync_fake: Fake, sync_client: Client) -> None:
    assert sync_client.sampling.generate("hi").text == "hello"
    sync_fake.failures["Generate"] = [failure("NOT_FOUND", "no job 3")]
    with pytest.raises(NotFoundError, match="no job 3"):
        sync_client.sampling.generate("hi", job=3)


def test_streams(sync_fake: Fake, sync_client: Client) -> None:
    sync_fake.deltas = two_deltas()
    with sync_client.sampling.generate_stream("hi", max_tokens=3) as stream:
        assert stream.params.max_tokens == 3
        assert [delta.text for delta in stream] == ["he", "llo"]
        assert stream.result().text == "hello"
    assert sync_client.sampling.generate_stream("hi").text() == "hello"
    assert [update.message for update in sync_client.jobs.watch(7)] == ["READY", "DESTROYED"]


def test_break_exit_and_dropping_cancel(sync_fake: Fake, sync_client: Client) -> None:
    sync_fake.deltas, sync_fake.stall = two_deltas(), True
    stream = sync_client.sampling.generate_stream("hi")
    for _ in stream:
        until_sync(lambda: sync_fake.lingering["GenerateStream"] == 1)
        break
    until_sync(lambda: sync_fake.cancelled["GenerateStream"] == 1)
    with pytest.raises(CallCancelledError):
        next(stream)
    with sync_client.sampling.generate_stream("hi"):
        until_sync(lambda: sync_fake.lingering["GenerateStream"] == 2)
    until_sync(lambda: sync_fake.cancelled["GenerateStream"] == 2)
    dropped = sync_client.sampling.generate_stream("hi")
    next(dropped)
    until_sync(lambda: sync_fake.lingering["GenerateStream"] == 3)
    del dropped
    gc.collect()
    until_sync(lambda: sync_fake.cancelled["GenerateStream"] == 3)


def test_from_many_threads(sync_fake: Fake, sync_client: Client) -> None:
    sync_fake.deltas = two_deltas()

    def work(number: int) -> str:
        if number % 2:
            return sync_client.sampling.generate_stream("hi").text()
        return sync_client.sampling.generate(f"hi {number}").text

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(work, range(200))) == ["hello"] * 200


def test_cancel_from_another_thread_wakes_the_reader(sync_fake: Fake, sync_client: Client) -> None:
    sync_fake.stall = True
    stream = sync_client.sampling.generate_stream("hi")
    timer = threading.Timer(0.2, stream.cancel)
    timer.start()
    with pytest.raises(CallCancelledError):
        stream.result()
    timer.join()


async def test_inside_a_running_loop(sync_client: Client) -> None:
    assert asyncio.get_running_loop().is_running()
    assert sync_client.sampling.generate("hi").text == "hello"


def test_ctrl_c_cancels_the_call(sync_fake: Fake, sync_client: Client) -> None:
    sync_fake.stall = True
    for begin, name in (
        (lambda: sync_client.sampling.generate("hi"), "Generate"),
        (lambda: sync_client.sampling.generate_stream("hi").result(), "GenerateStream"),
        (lambda: sync_client.training.step(1), "Step"),
    ):
        interrupt_when(partial(sync_fake.requests.get, name))
        with pytest.raises(KeyboardInterrupt):
            begin()
        until_sync(partial(sync_fake.cancelled.get, name))
    sync_fake.stall = False
    assert sync_client.sampling.generate("hi").text == "hello"


def interrupt_when(condition: Callable[[], object]) -> None:
    """Sends SIGINT to this process once the condition holds, as Ctrl-C would."""

    def run() -> None:
        until_sync(condition)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=run, daemon=True).start()


def test_a_callback_may_call_the_client(sync_client: Client) -> None:
    seen: list[tuple[str, str, str]] = []

    def on_progress(line: JobProgress) -> None:
        seen.append((line.message, sync_client.sampling.generate("hi").text, threading.current_thread().name))

    sync_client.jobs.create(training={}, on_progress=on_progress)
    me = threading.current_thread().name
    assert seen == [("loading", "hello", me), ("compiling", "hello", me)]


def test_an_error_in_a_callback_reaches_the_caller(sync_client: Client) -> None:
    def on_progress(_: JobProgress) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sync_client.jobs.create(training={}, on_progress=on_progress)


def test_on_the_clients_own_loop_it_is_refused(sync_client: Client) -> None:
    with pytest.raises(RuntimeError, match="AsyncClient"):
        shared_loop().call(lambda: sync_client.sampling.generate("hi"))


def test_a_sub_client_keeps_its_client(sync_fake: Fake) -> None:
    sampling = Client(sync_fake.address).sampling
    gc.collect()
    assert sampling.generate("hi").text == "hello"


def test_a_dropped_client_ends_its_heartbeats(sync_fake: Fake) -> None:
    client = Client(sync_fake.address)
    client.jobs.create(training={}, lease_s=0.15)
    until_sync(lambda: len(sync_fake.requests["Heartbeat"]) >= 2)
    del client
    gc.collect()
    shared_loop().run(asyncio.sleep(0.1))
    count = len(sync_fake.requests["Heartbeat"])
    shared_loop().run(asyncio.sleep(0.3))
    assert len(sync_fake.requests["Heartbeat"]) == count


def test_a_closed_client_says_so(sync_fake: Fake) -> None:
    client = Client(sync_fake.address)
    with client:
        client.sampling.generate("hi")
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.sampling.generate("hi")


def test_close_from_another_thread_ends_a_waiting_call(sync_fake: Fake) -> None:
    sync_fake.stall = True
    client = Client(sync_fake.address)
    threading.Timer(0.3, client.close).start()
    with pytest.raises(CallCancelledError, match="closed"):
        client.sampling.generate("hi")


def _use_after_fork(client: Client, answer: object) -> None:
    try:
        client.sampling.generate("hi")
    except RuntimeError as error:
        answer.send(str(error))  # type: ignore[attr-defined]  # a Connection of multiprocessing


def test_after_a_fork_it_says_what_to_do(sync_client: Client) -> None:
    sync_client.sampling.generate("hi")
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=_use_after_fork, args=(sync_client, there))
    child.start()
    assert here.poll(20)
    assert "spawn" in here.recv()
    child.join(5)
    child.kill()


SCRIPT = """
from gradwire.client import Client
client = Client("{address}", token="s3cret")
print(client.sampling.generate("hi").text)
stream = client.sampling.generate_stream("hi")
print(next(stream).text)
{end}
"""


@pytest.mark.parametrize("end", ["", "raise SystemExit(0)", "client.close()", "stream.cancel()"])
def test_a_process_ends_quietly(sync_fake: Fake, end: str) -> None:
    sync_fake.deltas = two_deltas()
    script = SCRIPT.format(address=sync_fake.address, end=end)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["hello", "he"], "")
