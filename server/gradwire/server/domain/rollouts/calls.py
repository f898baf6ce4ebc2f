"""A model call as it is recorded: the ids that the model read, those that were sampled, and their log-probs."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from gradwire.server.domain.rollouts.prefixes import PrefixIndex
from gradwire.server.domain.sampling import join
from gradwire.server.engines.sampling import CompletionDelta, LogProbs, SampleEvent, SamplingParams, TokenIds

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
    constrained: bool = False  # by a grammar
    params: SamplingParams | None = None  # where they are known before the engine reads the request


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
        self.unread = False  # its reader left before there was anything to read
        self.exchanges: dict[int, Exchange] = {}
        self.prompts_digest = b""  # once it has ended: equal for calls of equal prompts
        self.params = asked.params

    def settle(self, params: SamplingParams) -> None:
        """Note how it is sampled."""
        self.params = params

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
            bare = _bare(delta)
            exchange.deltas.setdefault(delta.index, []).append(bare)
            tokens += len(delta.token_ids)
        return tokens, size + _SAMPLED_BYTES * tokens

    def seal(self, status: CallStatus, turn: int, error: str = "") -> None:
        """It has ended; nothing is noted any more. Only the first end counts."""
        if self.status is not CallStatus.RUNNING:
            return
        self.status, self.error, self.ended_at = status, error, time.time()
        self.ended = self.ended or turn
        digest = hashlib.blake2b(digest_size=16)
        for exchange in self.prompts():
            exchange.completions()  # in one piece: many small ones take a hundred times the memory
            digest.update(len(exchange.prompt).to_bytes(8, "little") + exchange.prompt.tobytes())
        self.prompts_digest = digest.digest()

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
    latest: dict[bytes, int] = {}  # beginning of a call with these prompts
    for call in done:
        latest[call.prompts_digest] = max(call.begun, latest.get(call.prompts_digest, 0))
    again = {call.index: call for call in done if call.ended is not None and latest[call.prompts_digest] > call.ended}
    return again.keys() - _gone_on_from(again, done) if again else set()


def _gone_on_from(earlier: dict[int, Call], done: list[Call]) -> set[int]:
    """Those of `earlier` that a later call's prompt begins with, together with what was sampled for them."""
    index, owners = PrefixIndex(), []
    for call in earlier.values():
        for exchange in call.prompts():
            for completion in exchange.completions():
                index.add(np.concatenate([exchange.prompt, completion.token_ids]))
                owners.append(call)
    return {
        owners[number].index
        for later in done
        for exchange in later.prompts()
        for number in index.heads(exchange.prompt)
        if later.begun > (owners[number].ended or 0)
    }


def steps(calls: list[Call], again: set[int]) -> dict[int, int]:
    """Step of each call that counts, by call index: answered, not among those `retried`, in the order of beginning."""
    counted = [call.index for call in calls if call.status is CallStatus.DONE and call.index not in again]
    return {index: step for step, index in enumerate(counted)}
