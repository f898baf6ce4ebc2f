"""Answers kept for a client that may send the same request again: it is served once, and told the same twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gradwire.server.domain.rollouts.answer import Answer
from gradwire.server.domain.rollouts.requests import Request
from gradwire.server.errors import AlreadyExists, Unavailable

RETRY_WITHIN_S = 15.0  # OpenAI's clients wait up to 8 s between attempts, and up to 5 s for a connection


class Answers:
    """Those of a rollout. Only such as were given are kept: what failed is asked anew.

    One with a name is kept as long as the rollout is open, any other until its reader has it. One that was lost, so
    that nobody has it, is made to its end and waits `RETRY_WITHIN_S` for a reader. A stream that has begun is not,
    unless it has a key: its reader may have had enough, and OpenAI's clients do not retry what has begun. `hold` is
    told how many more bytes are kept.
    """

    def __init__(self, hold: Callable[[int], None], turn: Callable[[], int]) -> None:
        """`turn` gives the next number in the order of the rollout's beginnings and ends."""
        self._hold = hold
        self._turn = turn
        self._waits = True
        self._kept: set[Answer] = set()
        self._named: dict[str, Answer] = {}
        self._twins: dict[str, dict[Answer, None]] = {}  # whose retries are counted, the oldest first

    def find(self, request: Request) -> Answer | None:
        """That of the same request. AlreadyExists for another request of the same name."""
        kept = self._named.get(request.name)
        if kept is not None and kept.request.content != request.content:
            raise AlreadyExists("IDEMPOTENCY_KEY_REUSED", "this Idempotency-Key was sent with another request before")
        return kept or self._lost(request)

    def _lost(self, request: Request) -> Answer | None:
        """One that nobody got, of an earlier attempt.

        Equal requests are common where several answers are wanted, and which of them is sent again is unknown. But
        they are alike, and each answer that was lost is given to one of them: of the nearest count, the newest, since
        who sends a request anew has done with the one before.
        """
        found = [
            answer
            for answer in reversed(self._twins.get(request.twin, {}))
            if answer.lost and request.retries and (answer.retries or 0) < request.retries
        ]
        return max(found, key=lambda answer: answer.retries or 0, default=None)

    def begin(self, request: Request) -> Answer:
        """Room for the answer to a new request."""
        answer = Answer(request, self._hold)
        self._kept.add(answer)
        if request.retries is not None:
            self._twins.setdefault(request.twin, {})[answer] = None
        return answer

    def read(self, answer: Answer, request: Request) -> Reading:
        """A reader of it, from now on. It is lost no more."""
        if request.name and answer in self._kept:
            self._named[request.name] = answer
            answer.names.add(request.name)
        answer.claim(request.retries, self._turn)
        return Reading(self, answer)

    def drop(self, answer: Answer, error: Exception | None) -> None:
        """It was given up, unless it was complete by then; whoever follows it is told so."""
        if answer.complete:
            return
        self.forget(answer)
        answer.end(error or Unavailable("FIRST_ATTEMPT_LEFT", "the attempt that was being served was given up"))

    def wait_for_retry(self, answer: Answer) -> None:
        """Nobody reads it any more, and the last one who did lost it."""
        if self._waits and answer.can_wait and answer in self._kept:
            answer.lose(asyncio.get_running_loop().call_later(RETRY_WITHIN_S, self.give_up, answer))
        else:
            self.give_up(answer)

    def settle_later(self, answer: Answer) -> None:
        """It has gone out to its reader: if it was lost, that is known soon."""
        if not answer.names:
            answer.expire(asyncio.get_running_loop().call_later(RETRY_WITHIN_S, self.forget, answer))

    def give_up(self, answer: Answer) -> None:
        """Nobody asks for it any more. One that somebody had, and that has a name, is kept all the same."""
        if not (answer.names and answer.complete and answer.taken.is_set()):
            self.forget(answer)
        answer.give_up()

    def forget(self, answer: Answer) -> None:
        """Keep it no more."""
        if answer not in self._kept:
            return
        self._kept.discard(answer)
        for name in answer.names:
            del self._named[name]
        twins = self._twins.get(answer.request.twin, {})
        twins.pop(answer, None)
        if not twins:
            self._twins.pop(answer.request.twin, None)
        answer.release()

    def wait_no_more(self) -> None:
        """Give up what was lost, and what will be: no request will ask for it."""
        self._waits = False
        for answer in [answer for answer in self._kept if answer.lost]:
            self.give_up(answer)

    def clear(self) -> None:
        """Forget all; those that nobody reads are given up."""
        self.wait_no_more()
        for answer in list(self._kept):
            self.forget(answer)


class Reading:
    """One reader of an answer."""

    def __init__(self, answers: Answers, answer: Answer) -> None:
        self._answers = answers
        self._answer = answer
        self._over = False
        self._lost = False

    def sent(self) -> None:
        """All of it was written, unless it is known by now that it was lost."""
        if self._lost:
            return
        self._answer.taken.set()
        if not self._over:
            self._answers.settle_later(self._answer)

    def settle(self, lost: bool) -> None:
        """It is known whether its reader has it."""
        self._lost = lost
        self._answer.delivered |= not lost
        if self._leave():
            if lost:
                self._answers.wait_for_retry(self._answer)
            elif not self._answer.names:
                self._answers.forget(self._answer)

    def failed(self) -> None:
        """There is nothing to read, or it could not be written: it waits for nobody."""
        if self._leave():
            self._answers.give_up(self._answer)

    async def left(self) -> None:
        """Its reader stopped. Returns when the answer that it left has another reader, or is given up."""
        if self._leave():  # and not because its connection broke
            self._answers.give_up(self._answer)
        try:
            await self._answer.rest()
        except asyncio.CancelledError:
            if not self._answer.num_readers:  # else another reader came just now
                self._answers.give_up(self._answer)
            raise

    def _leave(self) -> bool:
        """Whether it was the last reader."""
        if self._over:
            return False
        self._over = True
        self._answer.num_readers -= 1
        return self._answer.num_readers == 0
