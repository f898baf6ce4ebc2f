"""The engine as vLLM's serving classes see it: AsyncLLM, with a guard before each request and an ear at each output.

Knows requests. Does not know OpenAI's JSON.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gradwire.server.engines.openai import OpenAiCall
from gradwire.server.engines.sampling import SamplingParams as Applied
from gradwire.server.engines.vllm.adapters import Adapters
from gradwire.server.engines.vllm.link import EngineLink
from gradwire.server.engines.vllm.outputs import OutputReader, check_ended
from gradwire.server.engines.vllm.requests import Request, Requests
from gradwire.server.engines.vllm.versions import version_in
from gradwire.server.errors import InvalidArgument

if TYPE_CHECKING:
    from vllm.outputs import RequestOutput
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine.output_processor import RequestState

_MAX_INT = 2**31 - 1


@dataclass(slots=True)
class CallState:
    """A call, and what became of it so far."""

    call: OpenAiCall
    failure: Exception | None = None  # as it was raised: a stream's error event has lost half of it
    versions: set[int] = field(default_factory=set)  # of the weights that sampled
    max_tokens: int | None = None  # at most so many, with `fit_tokens`
    min_tokens: int = 0  # at least so many, where there is room for them


current_state: ContextVar[CallState] = ContextVar("openai_call")
"""The call that is being answered: the serving classes between have no place for it."""


class GuardedEngine:
    """Everything of AsyncLLM; only `generate` is ours."""

    def __init__(
        self, link: EngineLink, require_awake: Callable[[], None], requests: Requests, adapters: Adapters
    ) -> None:
        self._link = link
        self._adapters = adapters
        self._require_awake = require_awake
        self._requests = requests

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link.llm, name)

    def generate(
        self, prompt: Any, sampling_params: SamplingParams, request_id: str, **options: Any
    ) -> AsyncGenerator[RequestOutput, None]:
        """Outputs of one prompt; closing the generator aborts the request."""
        # All this now: a stream is read by another task, after the call's answer has begun.
        state = current_state.get()
        self._require_awake()
        _check(sampling_params)
        texts = sampling_params.logprobs is not None
        self._prepare(state.call, prompt, sampling_params)
        if state.max_tokens:
            room = self._link.llm.model_config.max_model_len - len(prompt["prompt_token_ids"])
            sampling_params.max_tokens = min(state.max_tokens, room)
            sampling_params.min_tokens = min(state.min_tokens, sampling_params.max_tokens)
        if state.call.settled is not None:
            state.call.settled(_applied(sampling_params))
        # The serving class of completions numbers its prompts; chat has one.
        number = int(request_id.rpartition("-")[2]) if request_id.startswith("cmpl-") else 0
        return self._generate(state, number, prompt, sampling_params, request_id, options, texts=texts)

    async def _generate(
        self, state: CallState, number: int, prompt: Any, params: SamplingParams, name: str, options: dict[str, Any],
        *, texts: bool,
    ) -> AsyncGenerator[RequestOutput, None]:  # fmt: skip
        adapter = state.call.adapter
        request: Request | None = None
        try:
            request = await self._requests.add(name, prompt, params, adapter=adapter, **options)
            records = request.records(params.n or 1, texts=texts)
            watch = _watch(state, number, prompt, records, self._adapters.number(adapter))
            while not request.finished:
                output = await request.output()
                watch(output)
                check_ended(output, "structured_outputs" if params.structured_outputs is not None else "")
                if output.prompt_logprobs is not None:
                    # The serving classes know a position without log-probs by None; in flat lists it is empty.
                    output.prompt_logprobs = [position or None for position in output.prompt_logprobs]
                yield output
        except Exception as error:
            state.failure = error
            raise
        finally:
            if request is not None:
                await request.leave()

    def _prepare(self, call: OpenAiCall, prompt: Any, params: SamplingParams) -> None:
        # Lists instead of a dict of objects a token; the serving classes read both.
        params.flat_logprobs = True
        if call.observer is not None and params.logprobs is None:
            params.logprobs = 0  # the sampled token's own
        if call.cache_salt is not None:
            prompt["cache_salt"] = call.cache_salt


def _watch(
    state: CallState, number: int, prompt: Any, records: dict[int, RequestState], adapter: int
) -> Callable[[RequestOutput], None]:
    call = state.call
    tokens = np.array(prompt["prompt_token_ids"], dtype=np.int32)
    reader = OutputReader(len(tokens), prompt_log_probs=None, log_probs=0, states=records, adapter=adapter)

    def watch(output: RequestOutput) -> None:
        if call.observer is not None:
            call.observer(number, tokens, reader.read(output))
        for part in output.outputs:
            if part.finish_reason is not None and part.index in records:
                starts = records[part.index].weight_version_starts
                state.versions.update(version_in(text, adapter) for text, _ in starts)
        if output.finished and call.counter is not None:
            call.counter(sum(record.detokenizer.num_output_tokens() for record in records.values()))

    return watch


def _applied(params: SamplingParams) -> Applied:
    """Those that say which distribution tokens are drawn from, and how many."""
    return Applied(
        n=params.n or 1,
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=max(params.top_k, 0),  # vLLM has -1 for all, too
        min_p=params.min_p,
        max_tokens=params.max_tokens or 0,
        min_tokens=params.min_tokens,
        seed=params.seed,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        logit_bias=dict(params.logit_bias or {}),
    )


def _check(params: SamplingParams) -> None:
    """What JSON and pydantic let through and the engine's process would die of, or take for something else."""
    for name in (
        "temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
    ):  # fmt: skip
        value = getattr(params, name)
        if not math.isfinite(value):
            raise InvalidArgument.at(name, f"must be finite, is {value}")
    for name in ("max_tokens", "min_tokens", "top_k", "n"):
        value = getattr(params, name)
        if value is not None and abs(value) > _MAX_INT:
            raise InvalidArgument.at(name, f"{value} is out of range")
    outputs = params.structured_outputs
    if outputs is not None and outputs.choice:
        outputs.choice = list(dict.fromkeys(outputs.choice))  # xgrammar loses its way among many equal ones
    for token, bias in (params.logit_bias or {}).items():
        if not math.isfinite(bias):
            raise InvalidArgument.at(f"logit_bias.{token}", f"must be finite, is {bias}")
