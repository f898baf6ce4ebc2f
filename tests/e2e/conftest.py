"""A client of the shared server, and training jobs that are gone after the test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gradwire.client import Client, Job
from tests.serving import ServerProcess

TrainerFactory = Callable[..., Job]


@pytest.fixture(scope="session")
def client(server: ServerProcess) -> Iterator[Client]:
    """A client of the real server, with a deadline on every call so that nothing hangs a run."""
    with Client(server.address, timeout=120.0) as connected:
        yield connected


@pytest.fixture
def make_trainer(client: Client) -> Iterator[TrainerFactory]:
    """Makes training jobs: SGD at 0.1 without clipping, so that a wrong scale of a gradient shows."""
    made: list[Job] = []

    def make(**config: Any) -> Job:
        chosen = {"optimizer": {"name": "sgd", "learning_rate": 0.1}, "max_grad_norm": 0.0, "threads": 1, **config}
        job = client.jobs.create(training=chosen).training
        assert job is not None
        made.append(job)
        return job

    yield make
    for job in made:
        client.jobs.destroy(job)


LONG: Any = {"max_tokens": 1900, "ignore_eos": True}


@pytest.fixture(scope="module")
def whole_s(client: Client) -> float:
    """Seconds that eight long completions take."""
    began = time.monotonic()
    client.sampling.generate(["x"] * 8, LONG)
    return time.monotonic() - began
