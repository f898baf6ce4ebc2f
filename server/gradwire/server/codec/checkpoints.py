"""Checkpoints -> messages."""

from __future__ import annotations

from gradwire.server.codec.times import timestamp
from gradwire.server.engines.training import CheckpointInfo
from gradwire.v1 import training_pb2


def encode_checkpoint(info: CheckpointInfo, job_id: int) -> training_pb2.Checkpoint:
    """A finished checkpoint, and the job that wrote it."""
    return training_pb2.Checkpoint(
        name=info.name,
        path=info.path,
        export_path=info.export_path,
        adapter_path=info.adapter_path,
        weight_version=info.weight_version,
        step=info.step,
        size_bytes=info.nbytes,
        created_at=timestamp(info.created_unix),
        job_id=job_id,
    )
