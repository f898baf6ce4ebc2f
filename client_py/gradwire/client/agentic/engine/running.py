"""`run_engine`: one batch of tasks through an engine, with the checks of what comes back."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gradwire.client.agentic.engine.deadline import deadline_in, remaining_s
from gradwire.client.agentic.engine.failures import EngineBatch, TaskFailure, failure_of
from gradwire.client.agentic.engine.tasks import Ledger, Task, current_ledger, in_thread
from gradwire.client.agentic.engine.wrapper import BaseEngineWrapper
from gradwire.client.agentic.outcomes import POLICY_OUTCOMES, Outcome
from gradwire.client.agentic.trajectory import Trajectory, check_trainable

log = logging.getLogger(__name__)

_GRACE_S = 1.0  # an engine that heeds the deadline says by itself which tasks were late


def run_engine(engine: BaseEngineWrapper, tasks: Sequence[Task], *, deadline_s: float | None = None) -> EngineBatch:
    """Has an engine play tasks, and keeps what can be trained on.

    Args:
        engine: connected and initialised.
        tasks: dictionaries with string keys; one without an `id` gets its position. The engine sees copies.
        deadline_s: seconds for the whole batch. Completions and `run_tasks` within end in time by themselves; an engine
            that does not return is left behind, and what `run_tasks` had finished is kept.

    Returns:
        The trajectories in the order of tasks, and for each task that has none the reason. A trajectory is none when
        `check_trainable` refuses it, its `idx` is another's too, or its `outcome` is not the policy's doing.

    Raises:
        ValueError: no tasks, or one that is no dictionary.
        TypeError: the engine returns no list.
    """
    checked = _checked_tasks(tasks)
    ledger = Ledger()
    with deadline_in(deadline_s):
        limit = remaining_s()
        call = in_thread(lambda: _call(engine, checked, ledger))
    concurrent.futures.wait([call], None if limit is None else limit + _GRACE_S)
    if not call.done():
        broken: BaseException | None = TimeoutError(f"the engine had not returned after {limit:.3g} s")
    else:
        broken = call.exception()
    if broken is not None:
        log.error("engine %s failed", engine.agent_name, exc_info=broken)
        return _sorted_out(checked, list(ledger.read()[0].values()), ledger, broken)
    returned = call.result()
    if not isinstance(returned, (list, tuple)):
        kind = type(returned).__name__
        raise TypeError(f"generate_agent_trajectories_async must return a list of Trajectory, got {kind}")
    return _sorted_out(checked, returned, ledger, None)


def _checked_tasks(tasks: Sequence[Task]) -> list[Task]:
    if not isinstance(tasks, (list, tuple)) or not tasks:
        raise ValueError("tasks must be a non-empty list of dictionaries")
    for position, task in enumerate(tasks):
        if not isinstance(task, dict) or not all(isinstance(key, str) for key in task):
            kind = type(task).__name__
            raise ValueError(f"tasks[{position}] must be a dictionary with string keys, got {kind}")
    return [{"id": position, **task} for position, task in enumerate(tasks)]


def _call(engine: BaseEngineWrapper, tasks: list[Task], ledger: Ledger) -> Any:
    current_ledger.set(ledger)
    result: Any = engine.generate_agent_trajectories_async([dict(task) for task in tasks])
    return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result


async def _awaited(result: Any) -> Any:
    async with asyncio.timeout(remaining_s()):
        return await result


def _sorted_out(
    tasks: list[Task], returned: Sequence[Any], ledger: Ledger, broken: BaseException | None
) -> EngineBatch:
    """`returned` by task. What a task wrote down itself says more than what its engine did."""
    _, failed = ledger.read()
    by_idx, strays = _by_idx(returned, len(tasks))
    also = f"; it also returned {_some(strays)}" if strays else ""
    kept: list[Trajectory] = []
    failures: list[TaskFailure] = []
    for idx, task in enumerate(tasks):
        came = by_idx.get(idx, [])
        if problem := _problem(came):
            failures.append(TaskFailure(idx, task["id"], Outcome.ENV_ERROR, problem))
        elif came and came[0].outcome in POLICY_OUTCOMES:
            kept.append(came[0])
        elif came:
            ended = Outcome(came[0].outcome)
            failures.append(TaskFailure(idx, task["id"], ended, f"the engine says that it ended with {ended}"))
        elif idx in failed:
            failures.append(failed[idx])
        elif broken is not None:
            failures.append(failure_of(idx, task, broken))
        else:
            reason = f"the engine returned no trajectory of idx {idx}{also}"
            failures.append(TaskFailure(idx, task["id"], Outcome.ENV_ERROR, reason))
    _tell(failures, strays, len(tasks))
    return EngineBatch(kept, failures)


def _tell(failures: list[TaskFailure], strays: list[str], count: int) -> None:
    if strays:
        log.warning("the engine returned what belongs to no task: %s", _some(strays))
    if failures:
        kinds = Counter(failure.outcome for failure in failures)
        told = ", ".join(f"{number} {outcome}" for outcome, number in kinds.items())
        log.warning("%d of %d tasks have no trajectory: %s", len(failures), count, told)


def _some(names: list[str]) -> str:
    """The first few: the text stands in the reason of each task that has nothing."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _by_idx(returned: Sequence[Any], count: int) -> tuple[dict[int, list[Trajectory]], list[str]]:
    """What came for each position, and in words what belongs to none."""
    found: dict[int, list[Trajectory]] = {}
    strays: list[str] = []
    for place, item in enumerate(returned):
        if not isinstance(item, Trajectory):
            strays.append(f"{type(item).__name__} at {place}")
        elif isinstance(item.idx, bool) or not isinstance(item.idx, int) or not 0 <= item.idx < count:
            strays.append(f"a trajectory of idx {item.idx!r} at {place}, with {count} tasks")
        else:
            found.setdefault(item.idx, []).append(item)
    return found, strays


def _problem(came: list[Trajectory]) -> str:
    """Why none of what came for one task can be trained on; "" when nothing is wrong."""
    if len(came) > 1:
        return f"the engine returned {len(came)} trajectories of idx {came[0].idx}: whose each is cannot be told"
    for trajectory in came:
        try:
            trajectory.__post_init__()  # its fields may have been set since
            if trajectory.outcome in POLICY_OUTCOMES:  # of others nothing is read
                check_trainable(trajectory)
        except (TypeError, ValueError) as error:
            return str(error)
    return ""
