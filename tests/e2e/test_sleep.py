"""Sleep and wake as a training loop uses them: the trainer and the sampler take turns with the memory."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from gradwire.client import Client, FailedPreconditionError, Job, JobState
from tests.e2e.conftest import TrainerFactory
from tests.serving import ServerProcess, descendants

ADAMW = {"name": "adamw", "learning_rate": 1e-3}
BATCH = {"input_ids": [[1, 2, 3, 4, 5], [6, 7, 8]]}


def state_of(client: Client, job: Job) -> JobState:
    return client.jobs.get(job).state


def iteration(client: Client, trainer: Job, *, sleeping: bool) -> list[int]:
    """One round of a training loop; the tokens that the new weights sample."""
    if sleeping:
        assert client.sampling.sleep(level=2).changed
    client.training.fwd_bwd(trainer, BATCH, loss="cross_entropy")
    if sleeping:
        assert client.training.sleep(trainer).changed and client.training.wake(trainer).changed
    client.training.fwd_bwd(trainer, {"input_ids": [[9, 10, 11]]}, loss="cross_entropy")
    client.training.step(trainer)
    client.training.empty_cache(trainer)
    if sleeping:
        assert client.training.sleep(trainer, "non_lp").changed
        assert client.sampling.wake("weights").changed
    client.weights.sync(trainer, verify=True)
    if sleeping:
        assert client.sampling.wake("kv_cache").changed
        assert client.training.sleep(trainer, "lp_params").changed
        assert not client.training.sleep(trainer, "all").changed
        assert state_of(client, trainer) is JobState.SLEEPING
    tokens = client.sampling.generate("Hello", max_tokens=20, temperature=0).results[0].completions[0].token_ids
    if sleeping:
        assert client.training.wake(trainer).changed and not client.training.wake(trainer).changed
        assert state_of(client, trainer) is JobState.READY
    return list(tokens)


def test_taking_turns_changes_no_number(client: Client, make_trainer: TrainerFactory) -> None:
    plain, sleeper = make_trainer(optimizer=ADAMW), make_trainer(optimizer=ADAMW)
    for _ in range(2):
        expected = iteration(client, plain, sleeping=False)
        assert iteration(client, sleeper, sleeping=True) == expected
    norms = client.weights.get_norm(plain).norm, client.weights.get_norm(sleeper).norm
    assert norms[0] == norms[1] == pytest.approx(client.weights.get_norm().norm, rel=1e-12)


def test_calls_to_a_sleeping_trainer_name_the_one_that_wakes_it(client: Client, make_trainer: TrainerFactory) -> None:
    trainer = make_trainer()
    client.training.sleep(trainer)
    calls: list[Any] = [
        lambda: client.training.fwd_bwd(trainer, BATCH, loss="cross_entropy"),
        lambda: client.training.fwd_no_grad(trainer, BATCH),
        lambda: client.training.step(trainer),
        lambda: client.training.save_checkpoint(trainer),
        lambda: client.weights.sync(trainer),
        lambda: client.weights.get_norm(trainer),
    ]
    for call in calls:
        with pytest.raises(FailedPreconditionError, match=r"WakeTraining.*training\.wake") as caught:
            call()
        assert caught.value.reason == "TRAINER_ASLEEP"
    with pytest.raises(FailedPreconditionError, match="a sync needs the trainer's weights, which sleep"):
        client.weights.sync(trainer)
    with pytest.raises(ValueError, match="non_lp"):
        client.training.sleep(trainer, "nonlp")
    assert client.sampling.generate("fine", max_tokens=1).results  # the sync that was refused left it sampling


def test_a_sleeping_trainer_that_dies_is_noticed(
    client: Client, server: ServerProcess, make_trainer: TrainerFactory
) -> None:
    before = set(descendants(server.pid))
    trainer = make_trainer()
    (worker,) = [pid for pid, line in descendants(server.pid).items() if pid not in before and "deepspeed" in line]
    client.training.sleep(trainer)
    os.kill(worker, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while state_of(client, trainer) is not JobState.FAILED and time.monotonic() < deadline:
        time.sleep(0.1)
    with pytest.raises(FailedPreconditionError, match="signal 9"):
        client.training.wake(trainer)
    assert not psutil.pid_exists(worker)
