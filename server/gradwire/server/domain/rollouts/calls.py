"""A model call as it is recorded: the ids that the model read, those that were sampled, and their log-probs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from gradwire.server.domain.sampling import join
from gradwire.server.engines.sampling import CompletionDelta, LogProbs, SampleEvent, TokenIds

_TOKEN_BYTES = 4
_SAMPLED_BYTES = 8  # its id and its log-prob


class CallStatus(StrEnum):
    """What became of a call. RETRIED is seen only when the calls after it are known: see `retried`."""

    RUNNING = "running"
    DONE = "done"
    RETRIED = "retried"
    ABANDONED = "abandoned"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a call is, before anything is sampled."""

    request_id: str
    endpoint: str
    streamed: bool = False
    num_retries: int = 0  # that the client says it made before


@dataclass(slots=True)
class Exchange:
    """A prompt, int32 [P], and what was sampled for it, by completion."""

    prompt: TokenIds
    deltas: dict[int, list[CompletionDelta]] = field(default_factory=dict)

    def completions(self) -> list[CompletionDelta]:
        """One delta a completion, which holds all of it. Deltas have log-probs, float32 [T]."""
        for index, deltas in self.deltas.items():
            if len(deltas) > 1:
                self.deltas[index] = [join(deltas)]
        return [self.deltas[index][0] for index in sorted(self.deltas)]

    @property
    def finished(self) -> bool:
        """Each completion that has begun has ended."""
        return bool(self.deltas) and all(deltas[-1].finish_reason is not None for deltas in self.deltas.values())


class Call:
    """A call of a rollout. Times are Unix seconds."""

    def __init__(self, index: int, asked: Asked, turn: int) -> None:
        self.index = index
        self.asked = asked
        self.begun = turn  # order of beginnings and ends in the rollout
        self.ended: int | None = None
        self.begun_at = time.time()
        self.ended_at: float | None = None
        self.status = CallStatus.RUNNING
        self.error = ""
        self.server_failed = False
        self.exchanges: dict[int, Exchange] = {}

    def observe(self, number: int, prompt: TokenIds, event: SampleEvent) -> tuple[int, int]:
        """Note what was sampled for prompt `number`; tokens sampled, and bytes that it takes."""
        if self.status is not CallStatus.RUNNING:
            return 0, 0
        tokens = size = 0
        exchange = self.exchanges.get(number)
        if exchange is None:
            exchange = self.exchanges[number] = Exchange(prompt)
            size = _TOKEN_BYTES * len(prompt)
        for delta in event.deltas:
            exchange.deltas.setdefault(delta.index, []).append(_bare(delta))
            tokens += len(delta.token_ids)
        return tokens, size + _SAMPLED_BYTES * tokens

    def seal(self, status: CallStatus, turn: int, error: str = "") -> None:
        """It has ended; nothing is noted any more. Only the first end counts."""
        if self.status is CallStatus.RUNNING:
            self.status, self.error, self.ended, self.ended_at = status, error, turn, time.time()

    @property
    def finished(self) -> bool:
        """All that was asked for has been sampled, as far as it has begun."""
        return bool(self.exchanges) and all(exchange.finished for exchange in self.exchanges.values())

    def prompts(self) -> list[Exchange]:
        """By their number in the request."""
        return [self.exchanges[number] for number in sorted(self.exchanges)]


def log_probs_of(completion: CompletionDelta) -> LogProbs:
    """Of a recorded completion: it has them."""
    assert completion.log_probs is not None
    return completion.log_probs


def _bare(delta: CompletionDelta) -> CompletionDelta:
    """Without what is not kept: text, alternatives."""
    size = len(delta.token_ids)
    log_probs = np.empty(0, np.float32) if delta.log_probs is None else delta.log_probs
    if len(log_probs) != size:
        raise RuntimeError(f"the engine gave {len(log_probs)} log-probs of {size} sampled tokens")
    return CompletionDelta(
        index=delta.index,
        first_token_index=delta.first_token_index,
        token_ids=delta.token_ids,
        text="",
        log_probs=log_probs,
        weight_spans=delta.weight_spans,
        finish_reason=delta.finish_reason,
    )


def retried(calls: list[Call]) -> set[int]:
    """Indexes of answered calls whose prompt was asked again after they had ended, and that nothing goes on from.

    Calls of one prompt at the same time are no retries: that is how several answers are sampled.
    """
    done = [call for call in calls if call.status is CallStatus.DONE and call.exchanges]
    by_prompt: dict[tuple[bytes, ...], list[Call]] = {}
    for call in done:
        by_prompt.setdefault(tuple(e.prompt.tobytes() for e in call.prompts()), []).append(call)
    found = set()
    for same in by_prompt.values():
        for earlier in same:
            again = any(_follows(later, earlier) for later in same)
            if again and not any(_goes_on(later, earlier) for later in done):
                found.add(earlier.index)
    return found


def _follows(later: Call, earlier: Call) -> bool:
    return earlier.ended is not None and later.begun > earlier.ended


def _goes_on(later: Call, earlier: Call) -> bool:
    """A prompt of `later` begins with a prompt of `earlier` and what was sampled for it."""
    if not _follows(later, earlier):
        return False
    return any(
        extends(follower.prompt, np.concatenate([exchange.prompt, completion.token_ids]))
        for exchange in earlier.prompts()
        for completion in exchange.completions()
        for follower in later.prompts()
    )


def extends(tokens: TokenIds, head: TokenIds) -> bool:
    """`tokens` begins with `head`."""
    return len(tokens) >= len(head) and bool(np.array_equal(tokens[: len(head)], head))


def steps(calls: list[Call]) -> dict[int, int]:
    """Step of each call that counts, by call index: answered, not asked again, in the order of beginning."""
    again = retried(calls)
    counted = [call.index for call in calls if call.status is CallStatus.DONE and call.index not in again]
    return {index: step for step, index in enumerate(counted)}
