"""OpenAI's API on a fake."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from gradwire.server.engines.openai import Endpoint, OpenAiCall, Reply


class FakeOpenAi:
    """Says how many bytes the prompt has. `bodies` and `calls` are what it was asked."""

    def __init__(self) -> None:
        self.bodies: list[Mapping[str, Any]] = []
        self.calls: list[OpenAiCall] = []
        self.error: Exception | None = None

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
        return self._stream(answer) if body.get("stream") else answer

    async def _stream(self, answer: Mapping[str, Any]) -> AsyncIterator[str]:
        yield f"data: {answer['id']}\n\n"
        yield "data: [DONE]\n\n"
