"""Between the values of engines/training.py and the messages of worker.proto, both ways.

Columns are raw little-endian bytes. Does not know: sockets, torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf import json_format, struct_pb2

from gradwire.server.engines.training import LoraConfig, OptimizerConfig, SchedulerConfig, TrainingBatch, TrainingConfig
from gradwire.server.engines.weights import MemoryReport, TensorSpec, WeightManifest
from gradwire.server.losses.metrics import Metric, Reduction
from gradwire.worker.v1 import worker_pb2 as pb

Floats = npt.NDArray[np.float32]
MESSAGE_LIMIT = 1 << 30  # bytes of one message, at both ends

_REDUCTIONS = {
    Reduction.SUM: pb.Metric.REDUCTION_SUM,
    Reduction.MEAN: pb.Metric.REDUCTION_MEAN,
    Reduction.MAX: pb.Metric.REDUCTION_MAX,
}


def config_to_proto(config: TrainingConfig) -> pb.TrainingConfig:
    """A job's configuration, without what only the front needs (its default loss)."""
    optimizer, scheduler = config.optimizer, config.scheduler
    return pb.TrainingConfig(
        model=config.model,
        model_path=config.model_path,
        dtype=config.dtype,
        optimizer=pb.OptimizerConfig(
            name=optimizer.name,
            lr=optimizer.lr,
            beta1=optimizer.betas[0],
            beta2=optimizer.betas[1],
            eps=optimizer.eps,
            weight_decay=optimizer.weight_decay,
            momentum=optimizer.momentum,
        ),
        scheduler=pb.SchedulerConfig(
            name=scheduler.name,
            warmup_steps=scheduler.warmup_steps,
            total_steps=scheduler.total_steps,
            min_lr_ratio=scheduler.min_lr_ratio,
        ),
        max_grad_norm=config.max_grad_norm,
        zero_stage=config.zero_stage,
        num_workers=config.num_workers,
        seed=config.seed,
        max_tokens_per_micro_batch=config.max_tokens_per_micro_batch,
        gradient_checkpointing=config.gradient_checkpointing,
        threads=config.threads,
        lora=_lora_to_proto(config.lora),
        packing=config.packing,
    )


def _lora_to_proto(lora: LoraConfig | None) -> pb.LoraConfig | None:
    if lora is None:
        return None
    return pb.LoraConfig(rank=lora.rank, alpha=lora.alpha, target_modules=lora.target_modules)


def config_from_proto(message: pb.TrainingConfig) -> TrainingConfig:
    """The configuration that `config_to_proto` was given."""
    optimizer, scheduler, lora = message.optimizer, message.scheduler, message.lora
    return TrainingConfig(
        model=message.model,
        model_path=message.model_path,
        dtype=message.dtype,
        optimizer=OptimizerConfig(
            name=optimizer.name,
            lr=optimizer.lr,
            betas=(optimizer.beta1, optimizer.beta2),
            eps=optimizer.eps,
            weight_decay=optimizer.weight_decay,
            momentum=optimizer.momentum,
        ),
        scheduler=SchedulerConfig(
            name=scheduler.name,
            warmup_steps=scheduler.warmup_steps,
            total_steps=scheduler.total_steps,
            min_lr_ratio=scheduler.min_lr_ratio,
        ),
        max_grad_norm=message.max_grad_norm,
        zero_stage=message.zero_stage,
        num_workers=message.num_workers,
        seed=message.seed,
        max_tokens_per_micro_batch=message.max_tokens_per_micro_batch,
        gradient_checkpointing=message.gradient_checkpointing,
        threads=message.threads,
        lora=LoraConfig(lora.rank, lora.alpha, tuple(lora.target_modules)) if message.HasField("lora") else None,
        packing=message.packing,
    )


def positions_of(row_offsets: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Flat positions of some rows, end to end: what a rank's columns are in the caller's."""
    if not len(rows):
        return np.zeros(0, np.int64)
    return np.concatenate([np.arange(row_offsets[row], row_offsets[row + 1]) for row in rows])


def rows_to_proto(batch: TrainingBatch, mask: Floats, rows: npt.NDArray[np.int64]) -> pb.Rows:
    """Some rows of a batch, for one rank."""
    taken = positions_of(batch.row_offsets, rows)
    lengths = np.diff(batch.row_offsets)[rows]
    return pb.Rows(
        input_ids=to_bytes(batch.input_ids[taken], "<i4"),
        row_offsets=to_bytes(np.concatenate(([0], np.cumsum(lengths))), "<i8"),
        row_ids=to_bytes(rows, "<i8"),
        mask=to_bytes(mask[taken], "<f4"),
        columns={name: to_bytes(column[taken], "<f4") for name, column in batch.columns.items()},
    )


def to_bytes(array: npt.NDArray[Any], dtype: str) -> bytes:
    """Little-endian bytes of an array in a dtype."""
    return np.ascontiguousarray(array, dtype=dtype).tobytes()


def floats(data: bytes) -> Floats:
    """float32 view of bytes."""
    return np.frombuffer(data, "<f4")


def metrics_to_proto(metrics: Mapping[str, Metric]) -> list[pb.Metric]:
    """Metrics of one rank."""
    return [
        pb.Metric(name=name, reduction=_REDUCTIONS[m.reduction], value=m.value, weight=m.weight)
        for name, m in metrics.items()
    ]


def metrics_from_proto(messages: Any) -> dict[str, Metric]:
    """Metrics of one rank, back."""
    kinds = {number: reduction for reduction, number in _REDUCTIONS.items()}
    return {m.name: Metric(kinds[m.reduction], m.value, m.weight) for m in messages}


def struct(values: Mapping[str, Any]) -> struct_pb2.Struct:
    """A mapping of JSON-like values. Raises ValueError for anything else."""
    message = struct_pb2.Struct()
    message.update(dict(values))
    return message


def mapping(message: struct_pb2.Struct) -> dict[str, Any]:
    """The mapping again; whole numbers come back as floats."""
    result: dict[str, Any] = json_format.MessageToDict(message)
    return result


def manifest_to_proto(manifest: WeightManifest) -> list[pb.TensorSpec]:
    """The tensors of a manifest."""
    return [
        pb.TensorSpec(name=t.name, dtype=t.dtype, shape=t.shape, offset=t.offset, nbytes=t.nbytes)
        for t in manifest.tensors
    ]


def manifest_from_proto(tensors: Any, total_bytes: int) -> WeightManifest:
    """A manifest again."""
    return WeightManifest(
        tuple(TensorSpec(t.name, t.dtype, tuple(t.shape), t.offset, t.nbytes) for t in tensors), total_bytes
    )


def memory_from_proto(answers: Sequence[Any]) -> MemoryReport:
    """The workers' reports as one."""
    reports = [answer.memory for answer in answers]
    return MemoryReport(
        sum(r.before_bytes for r in reports), sum(r.after_bytes for r in reports), any(r.changed for r in reports)
    )
