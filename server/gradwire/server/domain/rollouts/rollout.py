"""A rollout: open until it ends one way, its calls recorded meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum

from gradwire.server.domain.jobs import JobState
from gradwire.server.domain.registry import SamplingJob
from gradwire.server.domain.rollouts.answers import Answers
from gradwire.server.domain.rollouts.calls import Asked, Call, CallStatus, retried, steps
from gradwire.server.engines.openai import Observer
from gradwire.server.engines.sampling import SampleEvent, TokenIds
from gradwire.server.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    FieldViolation,
    GradwireError,
    InvalidArgument,
    ResourceExhausted,
    Unavailable,
)

DEFAULT_TIMEOUT_S = 3600.0
MOST_CALLS = 10_000
_CALL_BYTES = 1024  # of a call's record, beside its tokens


class Outcome(StrEnum):
    """How a rollout ended. See RolloutOutcome in rollout.proto."""

    OK = "ok"
    TRUNCATED = "truncated"
    TIMEOUT = "timeout"
    ENV_ERROR = "env_error"
    INFRA_ERROR = "infra_error"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Spec:
    """What a rollout is opened with. See RolloutSpec in rollout.proto."""

    task_id: str = ""
    group_id: str = ""
    sample_index: int = 0
    group_size: int = 0
    timeout_s: float = DEFAULT_TIMEOUT_S
    max_calls: int = MOST_CALLS
    max_sampled_tokens: int = 0  # 0: no limit
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class End:
    """How a rollout ended, and what it was worth. `step_rewards` by step."""

    outcome: Outcome
    reason: str = ""
    reward: float | None = None
    step_rewards: Mapping[int, float] = field(default_factory=dict)


class Rollout:
    """One episode. Times are Unix seconds.

    `changed` is told how many more bytes are held, and whether there is more to tell those who follow.
    """

    def __init__(
        self, rollout_id: str, tenant: str, job: SamplingJob, spec: Spec, changed: Callable[[Rollout, int, bool], None]
    ) -> None:
        self.rollout_id = rollout_id
        self.tenant = tenant
        self.job = job
        self.spec = spec
        self.calls: list[Call] = []
        self._turns = itertools.count()
        self.answers = Answers(self.hold, self._turns.__next__)
        self.end: End | None = None
        self._asked: End | None = None  # by `finish`
        self.opened_at = time.time()
        self.ended_at: float | None = None
        self.collected_at: float | None = None
        self.limit_reached = False
        self.num_sampled_tokens = 0
        self.num_bytes = 0
        self._changed = changed
        self._running: dict[int, asyncio.Task[object]] = {}
        self._deadline = asyncio.get_running_loop().call_later(spec.timeout_s, self._time_is_up)

    @property
    def group(self) -> str:
        """Rollouts of one group are compared with one another; one without a group is alone in its own."""
        return self.spec.group_id or self.spec.task_id or self.rollout_id

    @property
    def deadline_at(self) -> float:
        """When it ends by itself."""
        return self.opened_at + self.spec.timeout_s

    @property
    def num_running_calls(self) -> int:
        """Calls under way."""
        return len(self._running)

    def require_open(self) -> None:
        """Raises what a call of a rollout that has ended gets."""
        if self.end is None:
            return
        if self.end.outcome is Outcome.TIMEOUT:
            raise DeadlineExceeded(
                "ROLLOUT_ENDED", f"the rollout ended: {self.end.reason}", metadata={"outcome": Outcome.TIMEOUT}
            )
        raise FailedPrecondition(
            "ROLLOUT_ENDED",
            f"the rollout has ended ({self.end.outcome}); open another one",
            subject=f"rollout/{self.rollout_id}",
            metadata={"outcome": self.end.outcome},
        )

    @contextmanager
    def recording(self, asked: Asked) -> Iterator[Call]:
        """Around a call, in the task that answers it. When the rollout ends, so does the call."""
        self.require_open()
        self._admit()
        task = asyncio.current_task()
        assert task is not None
        call = Call(len(self.calls), asked, next(self._turns))
        self.calls.append(call)
        self._running[call.index] = task
        self._note(_CALL_BYTES)
        try:
            yield call
        except asyncio.CancelledError:
            self._leave(call)
            if self.end is not None and task.cancelling() and self._running.pop(call.index, None) is None:
                task.uncancel()
                self.require_open()
            raise
        except Exception as error:
            self._failed(call, error)
            raise
        else:
            self._seal(call, CallStatus.DONE)
        finally:
            self._running.pop(call.index, None)
            self._note()

    def observer(self, call: Call) -> Observer:
        """Records what is sampled for a call as it comes."""

        def observe(number: int, prompt: TokenIds, event: SampleEvent) -> None:
            tokens, size = call.observe(number, prompt, event)
            if call.finished:  # from now on a caller may go on from it, before its last line is sent
                call.ended = next(self._turns)
            self.num_sampled_tokens += tokens
            self._note(size, news=False)

        return observe

    def hold(self, size: int) -> None:
        """Count bytes that are kept beside the calls."""
        self._note(size, news=False)

    def finish(self, end: End) -> None:
        """End it. The same again is fine; FailedPrecondition when it ended otherwise.

        One whose outcome the server chose takes the rewards that come with that outcome, once, until it is collected.
        """
        if self.end is None:
            self._settle()
            self._check(end)
            self._asked = end
            self._finish(self._explained(end) if end.outcome is Outcome.ENV_ERROR else end)
        elif self._server_chose and end.outcome is self.end.outcome and self.collected_at is None:
            self._check(end)
            self._asked = end
            self.end = replace(self.end, reward=end.reward, step_rewards=end.step_rewards)
            self._note()
        elif end != self._asked:
            raise self._ended_otherwise(self.end)

    @property
    def _server_chose(self) -> bool:
        return self.end is not None and (self._asked is None or self._asked.outcome is not self.end.outcome)

    def _explained(self, end: End) -> End:
        """An error of the agent's that followed one of ours was not its environment's."""
        if self.calls and self.calls[-1].server_failed:
            return replace(end, outcome=Outcome.INFRA_ERROR, reason=f"the server failed a call: {end.reason}")
        if self.limit_reached:
            return replace(end, outcome=Outcome.TRUNCATED, reason=f"a limit refused a call: {end.reason}")
        return end

    def _ended_otherwise(self, end: End) -> FailedPrecondition:
        reason = f" ({end.reason})" if end.reason else ""
        return FailedPrecondition(
            "ROLLOUT_ENDED",
            f"rollout {self.rollout_id} has ended already: {end.outcome}{reason}",
            subject=f"rollout/{self.rollout_id}",
            metadata={"outcome": end.outcome},
        )

    def cancel(self, reason: str) -> None:
        """End it as cancelled, if it is open."""
        if self.end is None:
            self._finish(End(Outcome.CANCELLED, reason))

    def close(self) -> None:
        """It is forgotten: no timer, no call."""
        self.cancel("it was discarded")

    def _admit(self) -> None:
        spec = self.spec
        if len(self.calls) >= spec.max_calls:
            found = f"its {spec.max_calls} calls"
        elif spec.max_sampled_tokens and self.num_sampled_tokens >= spec.max_sampled_tokens:
            found = f"{self.num_sampled_tokens} of its {spec.max_sampled_tokens} tokens"
        else:
            return
        self.limit_reached = True
        self._note()
        raise ResourceExhausted("ROLLOUT_LIMIT", f"the rollout has used {found}; finish it, as truncated for example")

    def _check(self, end: End) -> None:
        if not end.step_rewards:
            return
        count = len(steps(self.calls, retried(self.calls)))
        found = [
            FieldViolation(f"step_rewards[{place}].step", f"is {step}, but {count} calls count, from 0")
            for place, step in enumerate(end.step_rewards)
            if step >= count
        ]
        if found:
            raise InvalidArgument(found)

    def _time_is_up(self) -> None:
        if self.end is None:
            self._finish(End(Outcome.TIMEOUT, f"its deadline passed, {self.spec.timeout_s:g} s after it was opened"))

    def _finish(self, end: End) -> None:
        self.end = end
        self.ended_at = time.time()
        self._deadline.cancel()
        running, self._running = self._running, {}
        current = asyncio.current_task() if running else None
        for index, task in running.items():
            self._leave(self.calls[index])
            if task is not current and not self.calls[index].finished:  # else it only has its last lines to send
                task.cancel()
        self.answers.clear()
        self._note()

    def _failed(self, call: Call, error: Exception) -> None:
        self._seal(call, CallStatus.FAILED, error.message if isinstance(error, GradwireError) else "internal error")
        internal = not isinstance(error, GradwireError) or error.code == "INTERNAL"
        dead = self.job.state is JobState.FAILED
        call.server_failed = internal or dead or isinstance(error, (Unavailable, ResourceExhausted))
        if (internal or dead) and self.end is None:
            reason = f"{self.job.name} failed: {self.job.error}" if dead else "the server failed to answer a call"
            self._finish(End(Outcome.INFRA_ERROR, reason))

    def _settle(self) -> None:
        """Who finishes a rollout has read the answers that are whole, though their last lines may be on their way."""
        for index in self._running:
            if self.calls[index].finished:
                self._leave(self.calls[index])

    def _leave(self, call: Call) -> None:
        # What was sampled to its end was answered, whether or not its reader waited for the last line.
        answered = call.finished and not call.unread
        self._seal(call, CallStatus.DONE if answered else CallStatus.ABANDONED)

    def _seal(self, call: Call, status: CallStatus, error: str = "") -> None:
        call.seal(status, next(self._turns), error)

    def _note(self, size: int = 0, *, news: bool = True) -> None:
        self.num_bytes += size
        self._changed(self, size, news)
