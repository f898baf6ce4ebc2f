"""Streams as callers hold them: to iterate over, to cancel, and to join into a whole result.

Generated from `gradwire.client.aio.streams` by scripts/gen_sync_client.py; edit that instead.
"""

from __future__ import annotations

from gradwire.client.aio.streams import (
    AsyncCompletionStream,
    AsyncJobWatch,
    AsyncReplyStream,
    AsyncRolloutWatch,
    AsyncSampleStream,
)
from gradwire.client.sync.base import Stream
from gradwire.client.types.inference import Reply
from gradwire.client.types.jobs import JobUpdate
from gradwire.client.types.rollouts import RolloutUpdate
from gradwire.client.types.sampling import GenerateResult, PromptInfo, SamplingParams, StreamDelta, Usage


class CompletionStream(Stream[StreamDelta]):
    """Deltas of one prompt's completions: what the streams of samplers and of deployed agents share."""

    _async: AsyncCompletionStream

    def text(self) -> str:
        """Reads to the end; the text of the only completion. ValueError when there are several."""
        return self._loop.run(self._async.text())

    @property
    def params(self) -> SamplingParams:
        """The parameters with their defaults applied. Known from the first delta on, and in `async with`."""
        return self._async.params

    @property
    def usage(self) -> Usage:
        """Tokens read and sampled. RuntimeError until the stream has been read to its end."""
        return self._async.usage


class SampleStream(CompletionStream):
    """Completions of one prompt of a sampler, delta by delta."""

    _async: AsyncSampleStream

    @property
    def prompt(self) -> PromptInfo:
        """What is known of the prompt. Known from the first delta on, and in `async with`."""
        return self._async.prompt

    def result(self) -> GenerateResult:
        """Reads to the end; the same result as `generate` gives, deltas already read included."""
        return self._loop.run(self._async.result())


class ReplyStream(CompletionStream):
    """The reply of a deployed language model, delta by delta."""

    _async: AsyncReplyStream

    @property
    def session_id(self) -> str:
        """Conversation that the reply belongs to; empty when nothing is stored."""
        return self._async.session_id

    @property
    def num_dropped_messages(self) -> int:
        """Oldest messages left out of the prompt because the context was full."""
        return self._async.num_dropped_messages

    def result(self) -> Reply:
        """Reads to the end; the same reply as `generate` gives. ValueError when there are several."""
        return self._loop.run(self._async.result())


class JobWatch(Stream[JobUpdate]):
    """A job's state now, then each change, until it ends."""

    _async: AsyncJobWatch


class RolloutWatch(Stream[RolloutUpdate]):
    """Rollouts as they are, then each that changes."""

    _async: AsyncRolloutWatch
