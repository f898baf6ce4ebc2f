"""Checkpoints that somebody changed on disk: named, not used, and no harm to those beside them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode

from gradwire.v1 import job_pb2, training_pb2
from tests.rpc.support import Served, failure, model_folder


async def saved(served: Served, *names: str) -> tuple[int, Path]:
    job_id = await served.training_job()
    for name in names:
        request = training_pb2.SaveCheckpointRequest(job_id=job_id, name=name)
        path = (await served.training.SaveCheckpoint(request)).checkpoint.path
    return job_id, Path(path)


async def listed(served: Served) -> list[str]:
    response = await served.training.ListCheckpoints(training_pb2.ListCheckpointsRequest())
    return [checkpoint.name for checkpoint in response.checkpoints]


@pytest.mark.parametrize(
    "change",
    [
        {"nbytes": -1},
        {"step": -5},
        {"step": "x"},
        {"weight_version": 2**70},
        {"created_unix": 1e300},
        {"created_unix": float("nan")},
    ],
)
async def test_impossible_numbers(served: Served, change: dict[str, Any]) -> None:
    job_id, path = await saved(served, "good", "odd")
    metadata = path / "checkpoint.json"
    metadata.write_text(json.dumps(json.loads(metadata.read_text()) | change))
    assert await listed(served) == ["good"]
    failed = await failure(
        served.training.LoadCheckpoint(training_pb2.LoadCheckpointRequest(job_id=job_id, name="odd"))
    )
    assert (failed.code, failed.reason) == (StatusCode.FAILED_PRECONDITION, "CHECKPOINT_DAMAGED")
    assert "load_checkpoint" not in served.engines.trainers[0].applied
    await served.training.LoadCheckpoint(training_pb2.LoadCheckpointRequest(job_id=job_id, name="good"))


async def test_an_impossible_job_number_is_no_job(served: Served) -> None:
    _, path = await saved(served, "a")
    (path / "job_id").write_text("-3")
    response = await served.training.ListCheckpoints(training_pb2.ListCheckpointsRequest())
    assert response.checkpoints[0].job_id == 0


async def test_no_job_starts_from_a_model_that_was_changed(served: Served) -> None:
    _, path = await saved(served, "a")
    model = model_folder(path / "hf")
    facts = json.loads((path / "checkpoint.json").read_text())
    facts["files"] = {
        f"hf/{file.name}": {"nbytes": file.stat().st_size, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
        for file in model.iterdir()
    }
    (path / "checkpoint.json").write_text(json.dumps(facts))
    request = job_pb2.CreateJobsRequest(training=job_pb2.TrainingJobConfig(model="checkpoint:a"))
    assert await served.create(request)
    (model / "model.safetensors").write_bytes(b"other")
    for _ in range(2):
        failed = await failure(served.jobs.CreateJobs(request))
        assert failed.reason == "CHECKPOINT_DAMAGED" and "model.safetensors" in failed.text
        (model / "model.safetensors").unlink(missing_ok=True)


async def test_what_a_killed_trainer_left_unfinished_is_removed(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await served.training_job()

    async def broken(path: Path, *, name: str) -> None:
        (path.parent / f".{name}.partial-77").mkdir()
        raise RuntimeError("killed")

    monkeypatch.setattr(served.engines.trainers[0], "save_checkpoint", broken)
    await failure(served.training.SaveCheckpoint(training_pb2.SaveCheckpointRequest(job_id=job_id, name="a")))
    folder = served.app.settings.data_dir / "checkpoints" / "local"
    assert list(folder.iterdir()) == []


async def test_a_folder_that_cannot_be_written(served: Served) -> None:
    job_id = await served.training_job()
    served.app.settings.data_dir.mkdir(exist_ok=True)
    (served.app.settings.data_dir / "checkpoints").write_text("a file, where a folder should be")
    failed = await failure(served.training.SaveCheckpoint(training_pb2.SaveCheckpointRequest(job_id=job_id)))
    assert (failed.code, failed.reason) == (StatusCode.RESOURCE_EXHAUSTED, "CHECKPOINT_NOT_WRITTEN")
