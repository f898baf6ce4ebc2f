"""A batch through an engine: whatever one task does, the others keep what they have."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from gradwire.client.agentic import (
    CompletionError,
    Outcome,
    StepTrajectory,
    Trajectory,
    deadline_in,
    remaining_s,
    run_engine,
    run_tasks,
)
from tests.agentic.engines import Engine, trajectory

TASKS: list[dict[str, Any]] = [{"question": str(number)} for number in range(6)]


def ended(engine: Engine, count: int = 6, **options: Any) -> tuple[list[int], dict[int, tuple[Outcome, str]]]:
    batch = run_engine(engine, TASKS[:count], **options)
    return [item.idx for item in batch.trajectories], {
        failure.idx: (failure.outcome, failure.reason) for failure in batch.failures
    }


@pytest.fixture
def hung() -> Iterator[threading.Event]:
    """What hangs waits for it; nothing hangs longer than its test."""
    event = threading.Event()
    yield event
    event.set()


def test_trajectories_come_back_in_the_order_of_tasks() -> None:
    def play(tasks: list[dict[str, Any]]) -> list[Trajectory]:
        assert [task["id"] for task in tasks] == [0, 1, 2, 3, 4, "own"]
        tasks[0].clear()  # a copy
        return [trajectory(idx) for idx in (3, 0, 5, 1, 4, 2)]

    tasks: list[dict[str, Any]] = [*TASKS[:5], {"id": "own"}]
    batch = run_engine(Engine(play), tasks)
    assert [item.idx for item in batch.trajectories] == [0, 1, 2, 3, 4, 5]
    assert not batch.failures and tasks[0] == {"question": "0"}


def test_what_cannot_be_told_apart_or_trained_on_is_a_failure_with_its_reason() -> None:
    late_nan = trajectory(2)
    late_nan.response_masks = torch.tensor([1.0, float("nan")])
    returned = [
        trajectory(0), trajectory(1), trajectory(1), late_nan, "garbage", trajectory(9),
        trajectory(3, response_masks=torch.tensor([1, 1, 1])), trajectory(4, outcome="infra_error"),
    ]  # fmt: skip
    kept, failures = ended(Engine(lambda tasks: returned))
    assert kept == [0]
    assert {idx: outcome for idx, (outcome, _) in failures.items()} == {
        **dict.fromkeys((1, 2, 3, 5), Outcome.ENV_ERROR), 4: Outcome.INFRA_ERROR,
    }  # fmt: skip
    said = {idx: reason for idx, (_, reason) in failures.items()}
    assert "2 trajectories of idx 1" in said[1]
    assert said[2] == "response_masks contains NaN values"
    assert "3 entries for 2 response_tokens" in said[3]
    assert "ended with infra_error" in said[4]
    assert "no trajectory of idx 5" in said[5] and "str at 4" in said[5] and "idx 9 at 5" in said[5]


def test_many_strays_are_counted_and_not_all_listed() -> None:
    strays = [trajectory(idx) for idx in range(100, 1100)]  # an engine that is off by its own offset
    _, failures = ended(Engine(lambda tasks: strays))
    assert all("idx 100 at 0" in reason and "and 996 more" in reason for _, reason in failures.values())
    assert max(len(reason) for _, reason in failures.values()) < 400


def test_half_of_a_batch_that_fails_leaves_the_other_half() -> None:
    async def play_one(position: int, task: dict[str, Any]) -> Trajectory:
        await asyncio.sleep(0)
        match position:
            case 1:
                raise ZeroDivisionError("of the environment")
            case 3:
                raise CompletionError("the server is gone", 503)
            case 5:
                raise asyncio.CancelledError
        return trajectory(77)

    engine = Engine(lambda tasks: run_tasks(tasks, play_one, n_parallel=2))
    kept, failures = ended(engine)
    assert kept == [0, 2, 4]
    assert failures == {
        1: (Outcome.ENV_ERROR, "ZeroDivisionError: of the environment"),
        3: (Outcome.INFRA_ERROR, "CompletionError: the server is gone"),
        5: (Outcome.CANCELLED, "CancelledError"),
    }


@pytest.mark.parametrize("garbage", [None, "text", {"idx": 0}, []])
def test_a_task_that_gives_garbage_costs_only_itself(garbage: Any) -> None:
    engine = Engine(lambda tasks: run_tasks(tasks, lambda position, task: garbage if position else trajectory()))
    kept, failures = ended(engine, 2)
    assert kept == [0]
    assert failures[1][1] == f"TypeError: the task gave {type(garbage).__name__} where it must give a Trajectory"


def test_a_task_that_hangs_is_left_at_its_deadline(hung: threading.Event) -> None:
    def in_a_thread(position: int, task: dict[str, Any]) -> Trajectory:
        if position == 1:
            hung.wait(60)
        return trajectory()

    async def in_the_loop(position: int, task: dict[str, Any]) -> Trajectory:
        if position == 1:
            await asyncio.to_thread(hung.wait, 60)  # which keeps its event loop from closing
        return trajectory()

    for play_one in (in_a_thread, in_the_loop):
        began = time.monotonic()
        engine = Engine(lambda tasks, play=play_one: run_tasks(tasks, play, n_parallel=1, deadline_s=1))  # type: ignore[misc]
        kept, failures = ended(engine, 3)
        assert kept == [0, 2]
        assert failures == {1: (Outcome.TIMEOUT, "TimeoutError: it was not done within 1 s")}
        assert time.monotonic() - began < 30


def test_an_engine_that_does_not_return_loses_only_what_it_had_not_finished(hung: threading.Event) -> None:
    def play(tasks: list[dict[str, Any]]) -> list[Trajectory]:
        done = run_tasks(tasks[:2], lambda position, task: trajectory())
        hung.wait(60)
        return done

    kept, failures = ended(Engine(play), 3, deadline_s=1)
    assert kept == [0, 1]
    assert failures == {2: (Outcome.TIMEOUT, "TimeoutError: the engine had not returned after 1 s")}


def test_an_engine_that_raises_loses_only_what_it_had_not_finished() -> None:
    def play(tasks: list[dict[str, Any]]) -> Any:
        run_tasks(tasks[:2], lambda position, task: trajectory())
        raise OSError("disk")

    kept, failures = ended(Engine(play), 3)
    assert kept == [0, 1]
    assert failures == {2: (Outcome.ENV_ERROR, "OSError: disk")}


def test_the_batchs_deadline_reaches_its_tasks_and_what_they_call() -> None:
    seen: list[float | None] = []

    async def play_one(position: int, task: dict[str, Any]) -> Trajectory:
        seen.append(remaining_s(most=99))
        await asyncio.sleep(0 if position == 0 else 60)
        return trajectory()

    kept, failures = ended(
        Engine(lambda tasks: run_tasks(tasks, play_one, n_parallel=2, deadline_s=50)), 3, deadline_s=1
    )
    assert kept == [0]
    assert {outcome for outcome, _ in failures.values()} == {Outcome.TIMEOUT}
    assert len(seen) in (2, 3) and all(left is not None and left <= 2 for left in seen)
    with deadline_in(5), deadline_in(9):
        assert 4 < (remaining_s() or 0) <= 5
    assert remaining_s() is None


def test_an_engine_may_be_a_coroutine_function_and_is_called_within_a_loop_too() -> None:
    async def play(tasks: list[dict[str, Any]]) -> list[Trajectory]:
        await asyncio.sleep(0)
        return [trajectory(idx) for idx in range(len(tasks))]

    async def within() -> list[int]:
        return [item.idx for item in run_engine(Engine(play), TASKS).trajectories]

    assert asyncio.run(within()) == [0, 1, 2, 3, 4, 5]


def test_a_step_trajectory_stays_one() -> None:
    from gradwire.client.agentic import Step

    plain = trajectory()
    made = StepTrajectory(
        plain.prompt_tokens, plain.response_tokens, plain.response_masks, steps=[Step(model_response="x")]
    )
    (came,) = run_engine(Engine(lambda tasks: [made]), TASKS[:1]).trajectories
    assert came is made


def test_bad_tasks_and_an_engine_of_no_list_are_errors() -> None:
    engine = Engine(lambda tasks: "trajectories")
    wrong: Any
    for wrong in ([], {}, None, "tasks", [1], [{1: 2}]):
        with pytest.raises(ValueError, match="tasks"):
            run_engine(engine, wrong)
    with pytest.raises(TypeError, match="must return a list of Trajectory, got str"):
        run_engine(engine, TASKS)
    with pytest.raises(ValueError, match="n_parallel"):
        run_tasks(TASKS, lambda position, task: trajectory(), n_parallel=0)
