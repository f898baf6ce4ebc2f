"""From vLLM's request outputs to sample events.

One `OutputReader` follows one request: it knows how far each completion has been delivered, so
that vLLM may merge deltas of a slow reader without a token lost or counted twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradwire.server.engines.sampling import (
    CompletionDelta,
    FinishReason,
    LogProbs,
    PromptInfo,
    SampleEvent,
    TopLogProbs,
    WeightSpan,
)
from gradwire.server.engines.vllm.versions import version_in
from gradwire.server.errors import GradwireError, InvalidArgument

if TYPE_CHECKING:
    from vllm.logprobs import FlatLogprobs
    from vllm.outputs import CompletionOutput, RequestOutput
    from vllm.v1.engine.output_processor import RequestState

_FINISH = {reason.value: reason for reason in FinishReason}


class OutputReader:
    """Turns the outputs of one request into events.

    Args:
        num_prompt_tokens: P.
        prompt_log_probs: how many most likely tokens were asked for per prompt token; None: none.
        log_probs: the same per sampled token.
        states: vLLM's own record of each completion, by index, where the weight versions of
            tokens stand while they stream (in the output itself only at the end).
        adapter: number of the adapter whose versions count; 0: the model itself.
    """

    def __init__(
        self,
        num_prompt_tokens: int,
        *,
        prompt_log_probs: int | None,
        log_probs: int | None,
        states: dict[int, RequestState],
        adapter: int = 0,
    ) -> None:
        self._num_prompt_tokens = num_prompt_tokens
        self._prompt_log_probs = prompt_log_probs
        self._log_probs = log_probs
        self._states = states
        self._adapter = adapter
        self._delivered = dict.fromkeys(states, 0)
        self._first = True

    def read(self, output: RequestOutput) -> SampleEvent:
        """The event of one output; the prompt's part is in the first."""
        prompt = self._prompt(output) if self._first else None
        self._first = False
        return SampleEvent(deltas=tuple(self._delta(part) for part in output.outputs), prompt=prompt)

    def _prompt(self, output: RequestOutput) -> PromptInfo:
        log_probs, top = None, None
        flat = output.prompt_logprobs
        # A request that is aborted before its prompt was read has only the first, empty entry.
        if self._prompt_log_probs is not None and flat is not None and len(flat) == self._num_prompt_tokens:
            log_probs, top = _arrays(flat, self._num_prompt_tokens, self._prompt_log_probs, skip_first=True)
        return PromptInfo(self._num_prompt_tokens, output.num_cached_tokens or 0, log_probs, top)

    def _delta(self, part: CompletionOutput) -> CompletionDelta:
        first = self._delivered.get(part.index, 0)
        token_ids = np.array(part.token_ids, dtype=np.int32)
        end = first + len(token_ids)
        self._delivered[part.index] = end
        log_probs, top = None, None
        if self._log_probs is not None and part.logprobs is not None:
            log_probs, top = _arrays(part.logprobs, len(token_ids), self._log_probs)
        return CompletionDelta(
            index=part.index,
            first_token_index=first,
            token_ids=token_ids,
            text=part.text,
            log_probs=log_probs,
            top_log_probs=top,
            weight_spans=self._spans(part.index, first, end),
            finish_reason=_finish_reason(part.finish_reason),
            stop_reason=part.stop_reason,
        )

    def _spans(self, index: int, first: int, end: int) -> tuple[WeightSpan, ...]:
        """The versions that sampled tokens [first, end), cut to that range."""
        if first == end or index not in self._states:
            return ()
        starts = self._states[index].weight_version_starts
        spans: list[WeightSpan] = []
        for number, (text, start) in enumerate(starts):
            stop = starts[number + 1][1] if number + 1 < len(starts) else end
            if max(start, first) >= min(stop, end):
                continue
            version = version_in(text, self._adapter)
            if spans and spans[-1].version == version:  # what changed was another adapter's
                spans[-1] = WeightSpan(version, spans[-1].start, min(stop, end))
            else:
                spans.append(WeightSpan(version, max(start, first), min(stop, end)))
        return tuple(spans)


def check_ended(output: RequestOutput, grammar: str) -> None:
    """Raises when the engine ended a request by an error, which vLLM takes for a finish reason.

    `grammar` is the field of the request's grammar, empty without one: the engine makes grammars when requests are
    already in, and ends those whose grammar it cannot make, or cannot follow.
    """
    if any(part.finish_reason == "error" for part in output.outputs):
        if grammar:
            raise InvalidArgument.at(grammar, "the engine can make no grammar of it, or cannot follow it")
        raise GradwireError("ENGINE_FAILED", "the engine ended the request by an error; the server's log has it")


def _finish_reason(reason: str | None) -> FinishReason | None:
    # vLLM knows more reasons than we (repetition detection): all of them are stops.
    return None if reason is None else _FINISH.get(reason, FinishReason.STOP)


def _arrays(
    flat: FlatLogprobs, num_tokens: int, top: int, *, skip_first: bool = False
) -> tuple[LogProbs, TopLogProbs | None]:
    """float32 [T] of the tokens themselves, and the `top` most likely [T, top].

    vLLM lays k + 1 numbers end to end per position: the token itself, then the k most likely. The
    prompt's first position has none: NaN, and unused places.
    """
    starts = np.array(flat.start_indices, dtype=np.int64)
    values = np.array(flat.logprobs, dtype=np.float32)
    own = np.full(num_tokens, np.nan, dtype=np.float32)
    begin = int(skip_first)
    own[begin:] = values[starts[begin:]]
    if not top:
        return own, None
    token_ids = np.full((num_tokens, top), -1, dtype=np.int32)
    best = np.full((num_tokens, top), -np.inf, dtype=np.float32)
    ids = np.array(flat.token_ids, dtype=np.int32)
    if len(values) == (num_tokens - begin) * (top + 1):
        token_ids[begin:] = ids.reshape(-1, top + 1)[:, 1:]
        best[begin:] = values.reshape(-1, top + 1)[:, 1:]
    else:
        for row in range(begin, num_tokens):
            places = _ranked(flat, row, top)
            token_ids[row, : len(places)] = ids[places]
            best[row, : len(places)] = values[places]
    return own, TopLogProbs(token_ids, best)


def _ranked(flat: FlatLogprobs, row: int, top: int) -> list[int]:
    """Places of one position's most likely tokens, most likely first.

    Where vLLM has merged deltas, the token itself stands only once when it is among the most
    likely, with its rank there.
    """
    start, end = flat.start_indices[row], flat.end_indices[row]
    places = list(range(start + 1, end))
    rank = flat.ranks[start]
    if len(places) < top and rank is not None:
        places.insert(rank - 1, start)
    return places[:top]
