"""Streams as callers hold them: to iterate over, to cancel, and to join into a whole result.

Knows: start, deltas and end. Does not know: the channel. A stream is cancelled by leaving its `async with`,
by breaking out of its `async for`, by `cancel()` and by being dropped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from gradwire.client._convert.jobs import job_from_proto
from gradwire.client._convert.joining import Joiner
from gradwire.client._convert.rollouts import rollout_from_proto
from gradwire.client._convert.sampling import (
    deltas_from_proto,
    params_from_proto,
    prompt_from_proto,
    token_log_probs,
    usage_from_proto,
)
from gradwire.client._core.stream import ServerStream
from gradwire.client.errors import DataLossError
from gradwire.client.types.inference import Reply
from gradwire.client.types.jobs import JobUpdate
from gradwire.client.types.rollouts import RolloutUpdate
from gradwire.client.types.sampling import (
    Completion,
    GenerateResult,
    PromptInfo,
    PromptResult,
    SamplingParams,
    StreamDelta,
    Usage,
)
from gradwire.v1 import inference_pb2, job_pb2, rollout_pb2, sampling_pb2

Item = TypeVar("Item")


class AsyncStream(ABC, Generic[Item]):
    """Items of a call, as they come. Errors of the call are raised where it is read."""

    def __init__(self, wire: ServerStream[Any]) -> None:
        self._wire = wire

    async def _begin(self) -> None:
        """Reads what comes before the first item."""

    @abstractmethod
    async def _receive(self) -> Item | None:
        """The next item; None when there is none left."""

    def __aiter__(self) -> AsyncIterator[Item]:
        return _Iteration(self)

    async def __anext__(self) -> Item:
        await self._begin()
        item = await self._receive()
        if item is None:
            raise StopAsyncIteration
        return item

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Ends the call and frees its place in the engine. Cancelling what has ended is fine."""
        self._wire.cancel()


class _Iteration(Generic[Item]):
    """What an `async for` holds. Breaking out of the loop drops it, and so ends the call at once."""

    def __init__(self, stream: AsyncStream[Item]) -> None:
        self._stream = stream

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        return await self._stream.__anext__()

    def __del__(self) -> None:
        self._stream.cancel()


class AsyncCompletionStream(AsyncStream[StreamDelta]):
    """Deltas of one prompt's completions: what the streams of samplers and of deployed agents share."""

    def __init__(self, wire: ServerStream[Any]) -> None:
        super().__init__(wire)
        self._joiner = Joiner()
        self._pending: deque[StreamDelta] = deque()
        self._start: Any = None
        self._end: sampling_pb2.StreamEnd | None = None

    async def text(self) -> str:
        """Reads to the end; the text of the only completion. ValueError when there are several."""
        completions = await self._completions()
        if len(completions) != 1:
            raise ValueError(f"there are {len(completions)} completions; read each one's text from result()")
        return completions[0].text

    @property
    def params(self) -> SamplingParams:
        """The parameters with their defaults applied. Known from the first delta on, and in `async with`."""
        return params_from_proto(self._started().params)

    def _started(self) -> Any:
        if self._start is None:
            raise RuntimeError("the stream has not begun; enter it with `with` / `async with`, or read a delta first")
        return self._start

    async def _begin(self) -> None:
        if self._start is None:
            message = await self._wire.read()
            if message is None or not message.HasField("start"):
                self.cancel()
                raise DataLossError("the stream did not begin with its start")
            self._start = message.start
            await self._take(message)

    async def _receive(self) -> StreamDelta | None:
        while not self._pending:
            if self._end is not None:
                return None
            message = await self._wire.read()
            if message is None:
                raise DataLossError("the stream broke off without its end")
            await self._take(message)
        return self._pending.popleft()

    async def _take(self, message: Any) -> None:
        # Parts of a kind that this client does not know are passed over.
        for delta in deltas_from_proto(message.delta):
            try:
                self._joiner.add(delta)
            except DataLossError:
                self.cancel()
                raise
            self._pending.append(delta)
        if message.HasField("end"):
            self._end = message.end
            # The status comes after the end: reading it lets the call finish instead of being cancelled.
            await self._wire.read()

    async def _completions(self) -> tuple[Completion, ...]:
        await self._begin()
        while await self._receive() is not None:
            pass
        return self._joiner.completions(self._ended().completions)

    def _ended(self) -> sampling_pb2.StreamEnd:
        if self._end is None:
            raise RuntimeError("the stream has not ended; read it to its end first")
        return self._end

    @property
    def usage(self) -> Usage:
        """Tokens read and sampled. RuntimeError until the stream has been read to its end."""
        return usage_from_proto(self._ended().usage)


class AsyncSampleStream(AsyncCompletionStream):
    """Completions of one prompt of a sampler, delta by delta."""

    _wire: ServerStream[sampling_pb2.GenerateStreamResponse]

    @property
    def prompt(self) -> PromptInfo:
        """What is known of the prompt. Known from the first delta on, and in `async with`."""
        return prompt_from_proto(self._started().prompt)

    async def result(self) -> GenerateResult:
        """Reads to the end; the same result as `generate` gives, deltas already read included."""
        completions = await self._completions()
        end = self._ended()
        log_probs, top = token_log_probs(end.prompt_log_probs) if end.HasField("prompt_log_probs") else (None, None)
        cached = self.usage.cached_tokens
        prompt = replace(self.prompt, num_cached_tokens=cached, log_probs=log_probs, top_log_probs=top)
        return GenerateResult((PromptResult(prompt, completions),), self.params, self.usage)


class AsyncReplyStream(AsyncCompletionStream):
    """The reply of a deployed language model, delta by delta."""

    _wire: ServerStream[inference_pb2.GenerateReplyStreamResponse]

    def __init__(self, wire: ServerStream[Any], prompt: str) -> None:
        super().__init__(wire)
        self._prompt = prompt

    @property
    def session_id(self) -> str:
        """Conversation that the reply belongs to; empty when nothing is stored."""
        return str(self._started().session_id)

    @property
    def num_dropped_messages(self) -> int:
        """Oldest messages left out of the prompt because the context was full."""
        return int(self._started().num_dropped_messages)

    async def result(self) -> Reply:
        """Reads to the end; the same reply as `generate` gives. ValueError when there are several."""
        completions = await self._completions()
        if len(completions) != 1:
            raise ValueError(f"there are {len(completions)} completions where a reply has one; leave n at 1")
        return Reply(self._prompt, completions[0], self.session_id, self.num_dropped_messages)


class AsyncJobWatch(AsyncStream[JobUpdate]):
    """A job's state now, then each change, until it ends."""

    _wire: ServerStream[job_pb2.WatchJobResponse]

    async def _receive(self) -> JobUpdate | None:
        message = await self._wire.read()
        return None if message is None else JobUpdate(job_from_proto(message.job), message.message)


class AsyncRolloutWatch(AsyncStream[RolloutUpdate]):
    """Rollouts as they are, then each that changes."""

    _wire: ServerStream[rollout_pb2.WatchRolloutsResponse]

    async def _receive(self) -> RolloutUpdate | None:
        message = await self._wire.read()
        return None if message is None else RolloutUpdate(rollout_from_proto(message.rollout), message.gone)
