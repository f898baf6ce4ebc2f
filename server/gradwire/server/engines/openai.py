"""Values that cross the border of an engine that speaks OpenAI's API. No HTTP, no vllm."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from gradwire.server.engines.sampling import SampleEvent, SamplingParams, TokenIds

Reply: TypeAlias = Mapping[str, Any] | AsyncIterator[str]
"""A whole answer, or the lines of a stream of server-sent events. Closing the iterator ends the call."""


class Endpoint(StrEnum):
    """What is asked, by its path below /v1."""

    COMPLETIONS = "completions"
    CHAT_COMPLETIONS = "chat/completions"


Observer = Callable[[int, TokenIds, SampleEvent], None]
"""Sees what is sampled as it comes: number of the prompt in the request, its token ids, the event.

Events have log-probs of the sampled tokens.
"""


@dataclass(frozen=True, slots=True)
class OpenAiCall:
    """What a call brings beside its body."""

    request_id: str  # becomes part of the answer's id
    cache_salt: str | None = None  # requests with different salts share no prefix cache
    observer: Observer | None = None
    settled: Callable[[SamplingParams], None] | None = None  # told how each prompt is sampled, defaults applied
    adapter: str = ""  # of `SamplerEngine.update_adapter`; empty: the model itself
    fit_tokens: bool = False  # max_tokens and min_tokens are cut to what the model has room for, and no error
    counter: Callable[[int], None] | None = None  # told how many tokens each prompt's completions had


class OpenAiEngine(Protocol):
    """An engine that answers the bodies of OpenAI's completions and chat completions."""

    def models(self) -> Mapping[str, Any]:
        """The answer to GET /v1/models."""

    async def answer(self, endpoint: Endpoint, body: Mapping[str, Any], call: OpenAiCall) -> Reply:
        """Sample. `body` is decoded JSON of whatever content.

        Raises InvalidArgument with the field's name, NotFound for a model that is not served, FailedPrecondition
        while asleep, Unavailable when the engine is dead; until a stream's first line here, and after it where
        the stream is read.
        """
