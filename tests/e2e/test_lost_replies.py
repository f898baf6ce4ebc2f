"""Operations happen once: the answer of each mutating call is lost once, and nothing of it shows in the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gradwire.client import Client, Job
from tests.e2e.conftest import TrainerFactory
from tests.e2e.test_training import checksums, rows_of
from tests.lossy import LossyProxy
from tests.serving import ServerProcess

Lose = Callable[[str], None]
METHODS = {
    "TrainingService/FwdBwd": 4,
    "TrainingService/Step": 4,
    "TrainingService/SaveCheckpoint": 1,
    "TrainingService/LoadCheckpoint": 1,
    "WeightService/Sync": 1,
}


@contextmanager
def lossy(server: ServerProcess, door: str) -> Iterator[tuple[Client, LossyProxy]]:
    """A client of one door, behind a network that loses answers."""
    with LossyProxy(server.doors[door], server.doors["http"]) as proxy:
        scheme = "http://" if door == "http" else ""
        with Client(f"{scheme}{proxy.address}", timeout=60.0) as client:
            client.wait_ready()
            yield client, proxy


def catch_up(client: Client, job: Job, version: int) -> None:
    """Steps that change nothing, until the trainer's version is above that of a sampler that others have synced."""
    while client.weights.get_version(job).weight_version <= version:
        client.training.fwd_bwd(job, {"input_ids": [[1, 2, 3]]}, loss="cross_entropy")
        client.training.step(job, learning_rate=0.0)


def train(client: Client, job: Job, lose: Lose, checkpoint: str) -> list[int]:
    """Two steps, a checkpoint, a third step that loading takes back, another in its place; the versions it saw."""
    seen = []

    def advance(seed: int) -> None:
        lose("TrainingService/FwdBwd")
        client.training.fwd_bwd(job, {"input_ids": rows_of(seed, 4)}, loss="cross_entropy")
        lose("TrainingService/Step")
        seen.append(client.training.step(job).weight_version)

    advance(1)
    advance(2)
    lose("TrainingService/SaveCheckpoint")
    assert client.training.save_checkpoint(job, name=checkpoint).name == checkpoint
    advance(3)
    lose("TrainingService/LoadCheckpoint")
    client.training.load_checkpoint(job, checkpoint)
    advance(4)
    lose("WeightService/Sync")
    seen.append(client.weights.sync(job).weight_version)
    return seen


def test_weights_are_those_of_a_run_that_lost_nothing(
    server: ServerProcess, client: Client, make_trainer: TrainerFactory
) -> None:
    version = client.weights.get_version().weight_version
    reference = make_trainer()
    catch_up(client, reference, version)
    expected = train(client, reference, lambda method: None, f"whole-{version}")
    expected_sampler = client.weights.get_checksums().checksums
    for door in ("grpc", "http"):
        trainer = make_trainer()
        catch_up(client, trainer, version)
        with lossy(server, door) as (through_loss, proxy):
            calls = {method: proxy.ended(method) for method in METHODS}
            assert train(through_loss, trainer, proxy.lose, f"{door}-{version}") == expected
            assert {method: proxy.lost.count(method) for method in METHODS} == METHODS
            # Each call reached the server twice, and the second time was answered with the first result.
            answers = {method: proxy.ended(method) - before for method, before in calls.items()}
            assert answers == {method: 2 * count for method, count in METHODS.items()}
        assert checksums(client, trainer) == checksums(client, reference)
        assert client.weights.get_checksums().checksums == expected_sampler
