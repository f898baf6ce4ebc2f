"""The demo's task and its training batches, without a server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from demo.results import results_folder
from demo.rollout import Rollouts, training_batch
from demo.task import Score, Task
from gradwire.client import Completion, FinishReason, GenerateResult, PromptInfo, PromptResult, SamplingParams, Usage


@pytest.fixture(scope="module")
def task() -> Task:
    return Task(held_out=64, seed=1)


def test_no_held_out_problem_is_trained_on(task: Task) -> None:
    held_out = {problem.question for problem in task.held_out}
    drawn = {problem.question for problem in task.draw(500)}
    assert len(held_out) == 64
    assert len(drawn) == len(task.training) == 136
    assert not held_out & drawn


def test_each_seed_measures_on_the_same_problems(task: Task) -> None:
    other = Task(held_out=64, seed=2)
    assert [p.question for p in other.held_out] == [p.question for p in task.held_out]
    assert [p.question for p in other.draw(20)] != [p.question for p in Task(held_out=64, seed=1).draw(20)]


@pytest.mark.parametrize(
    ("text", "reward", "correct"),
    [
        ("{answer}", 1.0, True),
        (" {answer}\n", 1.0, True),
        ("The answer is {answer}.", 0.9, True),
        ("12345", 0.1, False),
        ("no idea", 0.0, False),
        ("", 0.0, False),
    ],
)
def test_most_of_the_reward_is_for_the_right_answer(task: Task, text: str, reward: float, correct: bool) -> None:
    problem = task.held_out[0]
    score = task.score(problem, text.format(answer=problem.entry["answer"]))
    assert score.reward == pytest.approx(reward, abs=0.02)
    assert score.correct is correct


def test_rows_carry_their_columns_on_the_shifted_grid() -> None:
    rollouts = Rollouts(
        _result([_prompt([5, 6, 7], [[1, 2], [3]]), _prompt([8, 9], [[1], [2]])]),
        [[Score(1.0, True), Score(0.0, False)], [Score(0.5, False), Score(0.5, False)]],
    )
    batch = training_batch(rollouts)
    assert batch is not None
    assert [row.tolist() for row in batch.input_ids] == [[5, 6, 7, 1, 2], [5, 6, 7, 3]]
    # Token 1 at place 3 is scored at 2; the last place scores nothing.
    assert [row.tolist() for row in batch.loss_mask] == [[0, 0, 1, 1, 0], [0, 0, 1, 0]]
    assert [row.tolist() for row in batch.old_log_probs_shifted] == [[0, 0, -1, -2, 0], [0, 0, -3, 0]]
    up, down = batch.advantages
    assert up[2] == up[3] > 0 > down[2]
    assert not up[[0, 1, 4]].any() and not down[[0, 1, 3]].any()


def test_nothing_is_learned_where_all_are_equally_good() -> None:
    rollouts = Rollouts(_result([_prompt([8, 9], [[1], [2]])]), [[Score(1.0, True), Score(1.0, True)]])
    assert training_batch(rollouts) is None


def _prompt(prompt: list[int], completions: list[list[int]]) -> PromptResult:
    return PromptResult(
        PromptInfo(np.array(prompt, np.int32), 0, None, None),
        tuple(
            Completion(
                index=index,
                text="",
                token_ids=np.array(ids, np.int32),
                log_probs=-np.array(ids, np.float32),
                top_log_probs=None,
                weight_spans=(),
                finish_reason=FinishReason.STOP,
                stop_reason=None,
            )
            for index, ids in enumerate(completions)
        ),
    )


def _result(results: list[PromptResult]) -> GenerateResult:
    return GenerateResult(tuple(results), SamplingParams(), Usage(0, 0, 0))


def test_a_run_does_not_replace_an_earlier_ones_results(tmp_path: Path) -> None:
    usual = tmp_path / "runs" / "demo"
    assert [results_folder(None, usual).name for _ in range(3)] == ["demo", "demo-2", "demo-3"]
    assert results_folder(usual, usual) == usual  # who names one means it
    assert [folder.name for folder in sorted(usual.parent.iterdir())] == ["demo", "demo-2", "demo-3"]


def test_of_warnings_only_the_known_ones_of_a_dependency_are_not_shown(tmp_path: Path) -> None:
    for name, source in {"cellpylib": "", "cellpylib.rules": "", "reasoning_gym": "import cellpylib.rules\n"}.items():
        file = tmp_path / name.replace(".", "/") / "__init__.py"
        file.parent.mkdir()
        file.write_text(f"{source}memoize = 'a'\nmemoize is 'b'\n")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2] / "examples")])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-c", "import demo.task"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "SyntaxWarning" in done.stderr, done.stderr
    assert "reasoning_gym" in done.stderr and "cellpylib" not in done.stderr
