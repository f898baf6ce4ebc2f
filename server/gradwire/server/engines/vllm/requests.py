"""Requests on their way through vLLM: added under an id of ours, and aborted when whoever reads them leaves.

Knows ids, adapters, vLLM's records of a request. Does not know by whose API it came, nor what is made of its outputs.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from gradwire.server.engines.sampling import SampledTokens
from gradwire.server.engines.vllm.adapters import Adapters
from gradwire.server.engines.vllm.link import EngineLink

if TYPE_CHECKING:
    from vllm.outputs import RequestOutput
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine.output_processor import RequestOutputCollector, RequestState


class Request:
    """One that is in the engine. `leave` it in any case."""

    def __init__(
        self, link: EngineLink, adapters: Adapters, adapter: str, queue: RequestOutputCollector, tokens: SampledTokens
    ) -> None:
        self._link = link
        self._adapters = adapters
        self._adapter = adapter
        self._queue = queue
        self._tokens = tokens
        self._begun = False
        self.finished = False
        """The last output was read."""

    async def output(self) -> RequestOutput:
        """The next one; what came since the last one is merged."""
        output = self._queue.get_nowait() or await self._queue.get()
        self.finished = output.finished
        if not self._begun:
            self._begun = True
            self._tokens.prompt += len(output.prompt_token_ids or ())
            self._tokens.cached += output.num_cached_tokens or 0
        for part in output.outputs:  # what is new: outputs are deltas, or come once
            self._tokens.sampled += len(part.token_ids)
        return output

    def records(self, n: int, *, texts: bool = False) -> dict[int, RequestState]:
        """vLLM's records of its `n` completions, by index. `texts`: log-probs come with their tokens' text."""
        known, request_id = self._link.llm.output_processor.request_states, self._queue.request_id
        ids = [request_id] if n == 1 else [f"{index}_{request_id}" for index in range(n)]
        found = {index: known[key] for index, key in enumerate(ids) if key in known}
        if not texts:
            for state in found.values():
                state.logprobs_processor.tokenizer = None  # it would look up a text for every log-prob
        return found

    async def leave(self) -> None:
        """Its place in the engine is free from now on."""
        self._adapters.closed(self._adapter, self._queue.request_id)
        if not self.finished and self._link.running:
            await self._link.llm.abort(self._queue.request_id, internal=True)
        self._queue.close()


class Requests:
    """All of one engine."""

    def __init__(self, link: EngineLink, adapters: Adapters) -> None:
        self._link = link
        self._adapters = adapters
        self._numbers = itertools.count()
        self.tokens = SampledTokens()

    async def add(
        self, name: str, prompt: Any, params: SamplingParams, *, adapter: str, **options: Any
    ) -> Request:  # fmt: skip
        """Hand a request to the engine; cancelled or refused half way, nothing of it stays there.

        `options` are those of `AsyncLLM.add_request`. Raises NotFound for an adapter that is not there, and what vLLM
        raises.
        """
        # Ours, not the caller's: vLLM takes the same id twice and then mixes the two up.
        request_id = f"{name}-{next(self._numbers)}"
        llm = self._link.llm
        with self._adapters.entering(adapter) as lora:
            try:
                queue = await llm.add_request(request_id, prompt, params, **(options | {"lora_request": lora}))
            except BaseException:
                await llm.abort(request_id)  # it may be half in
                raise
            self._adapters.opened(adapter, queue.request_id)
        return Request(self._link, self._adapters, adapter, queue, self.tokens)
