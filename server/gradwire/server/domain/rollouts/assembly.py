"""Training rows of recorded calls.

Each sampled token is in exactly one row, as it was sampled, with the log-prob that it was sampled with; no text is
tokenised here. A call whose prompt begins with all the tokens of a row goes on with that row. Any other prompt begins a
row of its own, which names the row that it comes from: a log-prob belongs to the tokens that the model read, so tokens
that were replaced, be their text the same, cannot be spliced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from gradwire.server.domain.rollouts.calls import Call, CallStatus, log_probs_of, retried, steps
from gradwire.server.domain.rollouts.prefixes import PrefixIndex
from gradwire.server.engines.sampling import CompletionDelta, FinishReason, LogProbs, TokenIds, WeightSpan


class RowStart(StrEnum):
    """Why a row begins. See RowStart in rollout.proto."""

    FIRST = "first"
    BRANCH = "branch"
    ANSWER_CHANGED = "answer_changed"
    CONTEXT_CHANGED = "context_changed"


@dataclass(frozen=True, slots=True)
class Turn:
    """Tokens [start, end) of a row are one completion. `weight_spans` count from its own first token."""

    call_index: int
    prompt_index: int
    completion_index: int
    step: int | None  # None: of a call that does not count
    start: int
    end: int
    weight_spans: tuple[WeightSpan, ...]
    finish_reason: FinishReason | None
    constrained: bool  # by a grammar, and so are its log-probs


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence of T tokens: ids int32, `loss_mask` bool (sampled), `log_probs` float32 (0 where not sampled)."""

    token_ids: TokenIds
    loss_mask: npt.NDArray[np.bool_]
    log_probs: LogProbs
    turns: tuple[Turn, ...]
    start: RowStart
    parent: int | None
    num_shared_tokens: int  # at the head: those of the parent


@dataclass(frozen=True, slots=True)
class Dropped:
    """A completion that is in no row. `status` is its call's; DONE: it has no token."""

    call_index: int
    prompt_index: int
    completion_index: int
    status: CallStatus
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Assembly:
    """What a rollout trains on, and what it does not."""

    rows: tuple[Row, ...]
    dropped: tuple[Dropped, ...]


def assemble(calls: Sequence[Call], *, include_retried: bool = False, include_abandoned: bool = False) -> Assembly:
    """Rows of calls that have ended, in the order in which the calls began."""
    calls = list(calls)
    again = retried(calls)
    step_of = steps(calls, again)
    wanted = {CallStatus.DONE}
    wanted |= {CallStatus.RETRIED} if include_retried else set()
    wanted |= {CallStatus.ABANDONED} if include_abandoned else set()
    rows = _Rows()
    dropped: list[Dropped] = []
    for call in calls:
        status = CallStatus.RETRIED if call.index in again else call.status
        for number, exchange in sorted(call.exchanges.items()):
            row = rows.going_on(exchange.prompt)
            for completion in exchange.completions():
                if status not in wanted or not len(completion.token_ids):
                    size = len(completion.token_ids)
                    dropped.append(Dropped(call.index, number, completion.index, status, size))
                    continue
                # The first completion goes on with the row; for the others its tokens are context.
                row = rows.begin(exchange.prompt) if row is None else row
                rows.add(row, exchange.prompt, completion, call, number, step_of.get(call.index))
                row = None
    return Assembly(tuple(row.row() for row in rows.rows), tuple(dropped))


@dataclass(slots=True)
class _Growing:
    start: RowStart
    parent: int | None
    num_shared_tokens: int
    tokens: TokenIds = field(default_factory=lambda: np.empty(0, np.int32))
    mask: list[npt.NDArray[np.bool_]] = field(default_factory=list)
    log_probs: list[LogProbs] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    def add(self, prompt: TokenIds, completion: CompletionDelta, call: Call, number: int, step: int | None) -> None:
        """A prompt that begins with the row so far, and a completion of it."""
        context, size = len(prompt) - len(self.tokens), len(completion.token_ids)
        self.tokens = np.concatenate([prompt, completion.token_ids]).astype(np.int32, copy=False)
        self.mask += [np.zeros(context, np.bool_), np.ones(size, np.bool_)]
        self.log_probs += [np.zeros(context, np.float32), log_probs_of(completion)]
        self.turns.append(
            Turn(
                call.index, number, completion.index, step, len(prompt), len(prompt) + size,
                completion.weight_spans, completion.finish_reason, call.asked.constrained,
            )
        )  # fmt: skip

    def row(self) -> Row:
        return Row(
            self.tokens, np.concatenate(self.mask), np.concatenate(self.log_probs), tuple(self.turns), self.start,
            self.parent, self.num_shared_tokens,
        )  # fmt: skip


class _Rows:
    """Rows as they grow."""

    def __init__(self) -> None:
        self._index = PrefixIndex()
        self.rows: list[_Growing] = []

    def going_on(self, prompt: TokenIds) -> int | None:
        """The longest row that a prompt begins with."""
        return next(iter(self._index.heads(prompt)), None)

    def begin(self, prompt: TokenIds) -> int:
        """A new row for a prompt, linked to one that shares the longest head with it."""
        if not self.rows:
            row = _Growing(RowStart.FIRST, None, 0)
        else:
            parent, shared = self._index.closest(prompt)
            row = _Growing(_why(self.rows[parent], prompt, shared), parent, shared)
        self.rows.append(row)
        return self._index.add(prompt)

    def add(
        self, number: int, prompt: TokenIds, completion: CompletionDelta, call: Call, place: int, step: int | None
    ) -> None:
        """A prompt that begins with row `number`, and a completion of it."""
        self.rows[number].add(prompt, completion, call, place, step)
        self._index.replace(number, self.rows[number].tokens)


def _why(parent: _Growing, prompt: TokenIds, shared: int) -> RowStart:
    if shared == len(prompt):
        return RowStart.BRANCH
    if any(turn.start <= shared < turn.end for turn in parent.turns):
        return RowStart.ANSWER_CHANGED
    return RowStart.BRANCH if shared >= parent.turns[0].end else RowStart.CONTEXT_CHANGED
