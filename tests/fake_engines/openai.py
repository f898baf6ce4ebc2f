"""OpenAI's API on a fake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import numpy as np

from gradwire.server.engines.openai import Endpoint, OpenAiCall, Reply
from gradwire.server.engines.sampling import CompletionDelta, FinishReason, SampleEvent, TokenIds, WeightSpan

LOG_PROB = -0.5


class FakeOpenAi:
    """Says how many bytes the prompt has, and samples these, reversed. `bodies` and `calls` are what it was asked.

    `gate`, when set, is awaited before each token of a stream, and before a whole answer; `head_gate` before a stream.
    """

    def __init__(self) -> None:
        self.bodies: list[Mapping[str, Any]] = []
        self.calls: list[OpenAiCall] = []
        self.error: Exception | None = None
        self.gate: asyncio.Semaphore | None = None
        self.head_gate: asyncio.Semaphore | None = None
        self.ended = 0

    def models(self) -> Mapping[str, Any]:
        """One."""
        return {"object": "list", "data": [{"id": "fake", "object": "model"}]}

    async def answer(self, endpoint: Endpoint, body: Mapping[str, Any], call: OpenAiCall) -> Reply:
        """The same as a whole and as a stream."""
        self.bodies.append(body)
        self.calls.append(call)
        if self.error is not None:
            raise self.error
        answer = {"id": call.request_id, "length": len(body.get("prompt", ""))}
        sampled = _sampled(body, call)
        if body.get("stream"):
            return self._stream(answer, sampled)
        try:
            if self.gate is not None:
                await self.gate.acquire()
            for _ in sampled:
                pass
            return answer
        finally:
            self.ended += 1

    async def _stream(self, answer: Mapping[str, Any], sampled: Any) -> AsyncIterator[str]:
        try:
            if self.head_gate is not None:
                await self.head_gate.acquire()
            yield f"data: {answer['id']}\n\n"
            for token in sampled:
                if self.gate is not None:
                    await self.gate.acquire()
                yield f"data: {token}\n\n"
            yield "data: [DONE]\n\n"
        finally:
            self.ended += 1


def _sampled(body: Mapping[str, Any], call: OpenAiCall) -> Any:
    """Tells the observer of each token as it is taken."""
    prompt: TokenIds = np.frombuffer(str(body.get("prompt", "")).encode(), np.uint8).astype(np.int32)
    for place, token in enumerate(prompt[::-1]):
        last = place + 1 == len(prompt)
        delta = CompletionDelta(
            0, place, np.array([token], np.int32), "", np.array([LOG_PROB], np.float32),
            weight_spans=(WeightSpan(0, place, place + 1),), finish_reason=FinishReason.LENGTH if last else None,
        )  # fmt: skip
        if call.observer is not None:
            call.observer(0, prompt, SampleEvent((delta,)))
        yield int(token)
