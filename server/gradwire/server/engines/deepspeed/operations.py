"""Operations on all workers of a job at once, and what becomes of them when a worker fails.

Operations run one after the other; one that has begun runs to its end even when its caller is cancelled,
because half of a collective would leave the ranks apart. A worker that dies, or alone fails in the middle, ends the
job: what is pending and what comes later gets Unavailable. Does not know: what the operations do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import grpc

from gradwire.server.codec.status import DETAILS_KEY, from_rpc_error
from gradwire.server.engines.deepspeed.launcher import LocalLauncher, WorkerProcess
from gradwire.server.engines.deepspeed.messages import MESSAGE_LIMIT
from gradwire.server.errors import Aborted, FailedPrecondition, GradwireError, Unavailable
from gradwire.worker.v1 import worker_pb2 as pb
from gradwire.worker.v1 import worker_pb2_grpc as rpc

T = TypeVar("T")

CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    ("grpc.max_send_message_length", MESSAGE_LIMIT),
    ("grpc.enable_retries", 0),  # a repeated operation would train twice
    ("grpc.enable_http_proxy", 0),
]
GRACE_SECONDS = 5.0
"""After one worker has failed in a way its peers do not know of, they may take this long to say so too."""
ANSWER_SECONDS = 20.0
"""A worker that says nothing for this long is stuck. Its threads answer during an operation, too, if slowly where
many processes share few cores."""


class WorkerGroup:
    """The workers of one job: start, operate, watch, stop."""

    def __init__(self, launcher: LocalLauncher) -> None:
        self._launcher = launcher
        self.workers: list[WorkerProcess] = []
        self._channels: list[grpc.aio.Channel] = []
        self._stubs: list[Any] = []
        self._watchers: list[asyncio.Task[None]] = []
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()
        self._death: asyncio.Future[GradwireError] | None = None
        self._closed = False

    async def start(self, world: int) -> None:
        """Start `world` workers; they may take a moment until they listen."""
        self._death = asyncio.get_running_loop().create_future()
        self.workers = await self._launcher.launch(world)
        for worker in self.workers:
            self._watchers.append(asyncio.create_task(self._watch(worker)))
            channel = grpc.aio.insecure_channel(worker.address, options=CHANNEL_OPTIONS)
            self._channels.append(channel)
            self._stubs.append(rpc.WorkerServiceStub(channel))

    async def operate(
        self, name: str, requests: Sequence[Any], done: Callable[[Sequence[Any]], None] | None = None
    ) -> Sequence[Any]:
        """One operation, a request for each worker: the answers, by rank.

        `done` gets the answers even when the caller is gone, so that what follows the workers' state can.
        """
        self.raise_if_gone()
        task = asyncio.create_task(self._in_turn(name, requests, done))
        self._running.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    async def check_health(self) -> None:
        """Raises Unavailable when a worker is dead or does not answer. Does not wait for operations.

        One that does not answer ends the job: whoever waits for its operation would wait for ever.
        """
        self.raise_if_gone()
        assert self._death is not None
        try:
            await asyncio.gather(*(stub.Health(pb.HealthRequest(), timeout=ANSWER_SECONDS) for stub in self._stubs))
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                # The connection broke; how its process ended says more.
                await asyncio.wait({self._death}, timeout=GRACE_SECONDS)
            if not self._closed:
                self._end(Unavailable("TRAINER_NOT_ANSWERING", "a trainer worker does not answer"))
            self.raise_if_gone()

    async def shutdown(self) -> None:
        """Stop the workers; returns when they are gone. Waits for a running operation first."""
        if self._closed:
            return
        self._closed = True
        if self._running and not self._is_dead():
            await asyncio.wait(self._running)
        for stub, worker in zip(self._stubs, self.workers, strict=False):
            if worker.process.returncode is None:
                try:
                    await stub.Shutdown(pb.ShutdownRequest(), timeout=2)
                except grpc.aio.AioRpcError:
                    worker.kill()
        await asyncio.gather(*(worker.stop() for worker in self.workers))
        await asyncio.gather(*self._watchers, *(channel.close() for channel in self._channels))
        self._launcher.clean()

    def give_up(self) -> None:
        """Stop the workers now, in the middle of whatever they do. Legal before `start`."""
        if self._death is not None:
            self._end(Unavailable("TRAINER_STOPPED", "the trainer was stopped"))

    def raise_if_gone(self) -> None:
        """Raises Unavailable for a dead job, FailedPrecondition for one that was not started or is stopped."""
        if self._is_dead():
            assert self._death is not None
            raise self._death.result()
        if self._closed or self._death is None:
            raise FailedPrecondition(
                "TRAINER_NOT_RUNNING", "the trainer is not running: it was not started, or it was stopped"
            )

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen, also when its caller was cancelled and nobody else looks

    async def _in_turn(
        self, name: str, requests: Sequence[Any], done: Callable[[Sequence[Any]], None] | None
    ) -> Sequence[Any]:
        async with self._lock:
            self.raise_if_gone()
            calls = [
                asyncio.ensure_future(getattr(stub, name)(request, wait_for_ready=True))
                for stub, request in zip(self._stubs, requests, strict=True)
            ]
            answers = await self._gather(name, calls)
            if done is not None:
                done(answers)
            return answers

    async def _gather(self, name: str, calls: Sequence[asyncio.Future[Any]]) -> Sequence[Any]:
        """All answers; or one error, once every worker has come out of the operation."""
        assert self._death is not None
        pending: set[asyncio.Future[Any]] = set(calls)
        deadline = None
        while pending and not self._death.done():
            finished, _ = await asyncio.wait(
                {*pending, self._death}, timeout=deadline, return_when=asyncio.FIRST_COMPLETED
            )
            pending -= finished
            if not finished:
                self._end(Unavailable("TRAINER_DIVERGED", f"one trainer worker failed in {name}, others did not"))
            elif any(call.exception() is not None for call in finished - {self._death}):
                deadline = GRACE_SECONDS
        if any(map(_lost_connection, calls)):
            # Its process has ended or is about to; how it ended says more than a closed socket.
            await asyncio.wait({self._death}, timeout=GRACE_SECONDS)
        if self._death.done():
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            raise self._death.result()
        return self._folded(name, calls)

    def _folded(self, name: str, calls: Sequence[asyncio.Future[Any]]) -> Sequence[Any]:
        errors = [_error_of(call) for call in calls if call.exception() is not None]
        if not errors:
            return [call.result() for call in calls]
        # A rank that only heard of a peer's failure says Aborted; the peer says what it was.
        error = next((e for e in errors if not isinstance(e, Aborted)), errors[0])
        # An error of the job's own making leaves all ranks as they were. Anything else may have stopped a rank
        # anywhere: its gradients cannot be trusted, and alone among several it waits for no collective any more.
        if len(errors) < len(calls) or type(error) is GradwireError:
            self._end(Unavailable("TRAINER_FAILED", f"the trainer failed in {name}: {error.message}"))
        raise error

    async def _watch(self, worker: WorkerProcess) -> None:
        await worker.wait()
        if not self._closed:
            self._end(Unavailable("TRAINER_DIED", f"trainer worker {worker.rank} {worker.exit_text}"))

    def _end(self, error: GradwireError) -> None:
        """The job cannot go on: remember why, and stop what is left of it."""
        assert self._death is not None
        if not self._death.done():
            self._death.set_result(error)
        for worker in self.workers:
            worker.kill()

    def _is_dead(self) -> bool:
        return self._death is not None and self._death.done()


def _error_of(call: asyncio.Future[Any]) -> GradwireError:
    error = call.exception()
    if isinstance(error, grpc.aio.AioRpcError):
        return from_rpc_error(error)
    return GradwireError("WORKER_FAILED", f"{type(error).__name__}: {error}")


def _lost_connection(call: asyncio.Future[Any]) -> bool:
    """Whether a call ended without a word from the worker itself."""
    error = call.exception() if call.done() and not call.cancelled() else None
    if not isinstance(error, grpc.aio.AioRpcError):
        return False
    return all(key != DETAILS_KEY for key, _ in error.trailing_metadata() or ())
