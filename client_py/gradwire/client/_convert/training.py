"""Training's batches to messages, and its results back.

Knows: columns, layouts and what each column's dtype is. Does not know: how a large batch travels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf.message import Message

from gradwire.client._convert.messages import as_mapping, put_field
from gradwire.client._convert.nearest import check_names
from gradwire.client._convert.structs import struct_to_proto
from gradwire.client._convert.tensors import (
    Array,
    Placer,
    as_float32,
    elements,
    is_torch,
    put_rows,
    put_tensor,
    rows_from_proto,
)
from gradwire.client._convert.times import moment, seconds
from gradwire.client.types.training import (
    Checkpoint,
    DeletedCheckpoint,
    FwdBwdResult,
    FwdNoGradResult,
    LoadResult,
    Rows,
    StepResult,
    TrainingBatchLike,
    ZeroGradResult,
)
from gradwire.v1 import sampling_pb2, training_pb2

_INTEGERS = frozenset({"input_ids", "versions"})
_FLOATS = frozenset({"advantages", "old_log_probs_shifted", "prox_logp_shifted", "ref_log_probs_shifted"})


class Layout(NamedTuple):
    """Where rows lie: [B, S] when `offsets` is None, else row r is elements [offsets[r], offsets[r + 1])."""

    shape: tuple[int, ...]
    offsets: npt.NDArray[np.int64] | None

    @property
    def rows(self) -> int:
        """B."""
        return self.shape[0] if self.offsets is None else len(self.offsets) - 1

    def __str__(self) -> str:
        if self.offsets is None:
            return f"shape {list(self.shape)}"
        return f"{self.rows} rows of lengths {np.diff(self.offsets).tolist()[:8]}{'...' if self.rows > 8 else ''}"


def batch_to_proto(batch: TrainingBatchLike) -> training_pb2.TrainingBatch:
    """A TrainingBatch. TypeError or ValueError names the column and what would fit."""
    message = training_pb2.TrainingBatch()
    put_batch(message, batch)
    return message


def put_batch(message: training_pb2.TrainingBatch, batch: TrainingBatchLike, placer: Placer | None = None) -> None:
    """Writes a batch into a message, in place; its large padded columns where `placer` takes them."""
    columns = {key: value for key, value in as_mapping(batch, "batch", "TrainingBatch").items() if value is not None}
    known = training_pb2.TrainingBatch.DESCRIPTOR.fields_by_name
    check_names("batch column", columns, known, TypeError)
    if "input_ids" not in columns:
        raise ValueError("batch.input_ids is missing; it is the one required column")
    given = columns.pop("input_ids")
    if isinstance(given, list | tuple) and not given:
        raise ValueError("batch.input_ids holds no rows")
    ids, layout = _column(given, "input_ids")
    if ids.size == 0:
        raise ValueError(f"batch.input_ids holds no tokens ({layout})")
    put_rows(message.input_ids, ids, layout.offsets, placer)
    for name, value in columns.items():
        _put(message, name, value, layout, placer)


def _put(message: training_pb2.TrainingBatch, name: str, value: Any, layout: Layout, placer: Placer | None) -> None:
    where = f"batch.{name}"
    if name == "prompt_group_ids":
        groups = elements(value, where).array
        if groups.shape != (layout.rows,) or groups.dtype.kind not in "iu":
            raise ValueError(
                f"{where} has shape {list(groups.shape)}; it is one integer for each of {layout.rows} rows"
            )
        put_tensor(message.prompt_group_ids, groups.astype(np.int64), where, placer)
        return
    if name == "attention_mask" and layout.offsets is not None:
        raise ValueError(f"{where} goes only with padded [B, S] columns; rows of differing lengths have no padding")
    if name == "advantages" and not is_ragged(value) and _dimensions(value, where) == 1:
        array, own = _spread(as_float32(value, where), layout), layout
    else:
        array, own = _column(value, name)
    same = own.shape == layout.shape if layout.offsets is None else np.array_equal(own.offsets, layout.offsets)  # type: ignore[arg-type]
    if not same or (own.offsets is None) != (layout.offsets is None):
        raise ValueError(f"{where} has {own}, but batch.input_ids has {layout}; all columns have the same layout")
    if name == "attention_mask":
        put_tensor(message.attention_mask, array, where, placer)
    else:
        put_rows(getattr(message, name), array, layout.offsets, placer)


def is_ragged(value: Any) -> bool:
    """A list of rows, not one array: rows may differ in length."""
    if isinstance(value, np.ndarray):
        return value.dtype == object
    return not is_torch(value) and isinstance(value, list | tuple) and bool(value) and _is_row(value[0])


def _dimensions(value: Any, where: str) -> int:
    return int(value.ndim if hasattr(value, "ndim") else elements(value, where).array.ndim)


def _is_row(value: Any) -> bool:
    # Said without making an array of it, which may not be possible: that is told when it is made, with its place.
    if hasattr(value, "ndim"):
        return bool(value.ndim > 0)
    return hasattr(value, "__len__") and not isinstance(value, str | bytes)


def _column(value: Any, name: str) -> tuple[Array, Layout]:
    where = f"batch.{name}"
    if not is_ragged(value):
        array = _typed(value, name, where)
        if array.ndim != 2:
            raise ValueError(
                f"{where} has shape {list(array.shape)}; give [rows, width], or a list of one-dimensional rows"
            )
        return array, Layout(array.shape, None)
    rows = [_typed(row, name, f"{where}[{number}]") for number, row in enumerate(value)]
    for number, row in enumerate(rows):
        if row.ndim != 1:
            raise ValueError(f"{where}[{number}] has shape {list(row.shape)}; a row has one dimension")
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return np.concatenate(rows), Layout((int(offsets[-1]),), offsets)


def _typed(value: Any, name: str, where: str) -> Array:
    if name in _FLOATS:
        return as_float32(value, where)
    array, dtype = elements(value, where)
    if name in _INTEGERS:
        if array.size == 0:
            return array.astype(np.int32)  # numpy takes an empty list for floats; the server names the row
        if array.dtype.kind not in "iu" or dtype == "bfloat16":
            raise TypeError(f"{where} holds {dtype}; it holds integers")
        return array if dtype in ("int32", "int64") else array.astype(np.int32)
    return as_float32(value, where) if dtype in ("bfloat16", "float64") else array


def _spread(per_row: Array, layout: Layout) -> Array:
    if len(per_row) != layout.rows:
        raise ValueError(f"batch.advantages has {len(per_row)} entries for {layout.rows} rows")
    if layout.offsets is not None:
        return np.repeat(per_row, np.diff(layout.offsets))
    return np.ascontiguousarray(np.broadcast_to(per_row[:, None], layout.shape))


def loss_to_proto(name: str | None, config: Mapping[str, Any] | None) -> training_pb2.LossSpec | None:
    """A loss by name with its configuration; None for the job's own."""
    if name is None and config is None:
        return None
    spec = training_pb2.LossSpec()
    if name is not None:
        put_field(spec, "name", name, "loss")
    if config is not None:
        spec.config.CopyFrom(struct_to_proto(as_mapping(config, "loss_config"), "loss_config"))
    return spec


def fwd_bwd_from_proto(response: training_pb2.FwdBwdResponse) -> FwdBwdResult:
    """Result of a forward and backward pass."""
    queued_s, run_s = _timing(response.timing)
    return FwdBwdResult(
        loss=response.loss,
        num_loss_tokens=response.num_loss_tokens,
        num_tokens=response.num_tokens,
        num_micro_batches=response.num_micro_batches,
        metrics=dict(response.metrics),
        weight_version=response.weight_version,
        log_probs_shifted=_rows(response, "log_probs_shifted"),
        entropy=_rows(response, "entropy"),
        warnings=tuple(response.warnings),
        queued_s=queued_s,
        run_s=run_s,
    )


def fwd_no_grad_from_proto(response: training_pb2.FwdNoGradResponse) -> FwdNoGradResult:
    """Result of a forward pass."""
    log_probs: Any = rows_from_proto(response.log_probs_shifted)
    entropy = _rows(response, "entropy")
    return FwdNoGradResult(log_probs, entropy, response.weight_version, *_timing(response.timing))


def step_from_proto(response: training_pb2.StepResponse) -> StepResult:
    """Result of an optimizer step."""
    return StepResult(
        response.grad_norm,
        response.learning_rate,
        response.weight_version,
        response.step,
        *_timing(response.timing),
    )


def zero_grad_from_proto(response: training_pb2.ZeroGradResponse) -> ZeroGradResult:
    """What was dropped."""
    return ZeroGradResult(response.num_dropped, *_timing(response.timing))


def checkpoint_from_proto(message: training_pb2.Checkpoint) -> Checkpoint:
    """A checkpoint."""
    return Checkpoint(
        name=message.name,
        path=message.path,
        export_path=message.export_path,
        adapter_path=message.adapter_path,
        weight_version=message.weight_version,
        step=message.step,
        size_bytes=message.size_bytes,
        created_at=moment(message, "created_at"),
        job_id=message.job_id,
    )


def deleted_from_proto(response: training_pb2.DeleteCheckpointResponse) -> DeletedCheckpoint:
    """What became of a checkpoint that was to be deleted."""
    return DeletedCheckpoint(response.deleted, response.freed_bytes)


def load_from_proto(response: training_pb2.LoadCheckpointResponse) -> LoadResult:
    """Where the job goes on."""
    checkpoint = checkpoint_from_proto(response.checkpoint)
    return LoadResult(checkpoint, response.weight_version, response.step, *_timing(response.timing))


def _rows(response: Message, field: str) -> Rows | None:
    found: Any = rows_from_proto(getattr(response, field)) if response.HasField(field) else None
    return found


def _timing(timing: sampling_pb2.Timing) -> tuple[float, float]:
    return seconds(timing.queued), seconds(timing.run)
