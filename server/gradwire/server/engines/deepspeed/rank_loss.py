"""A micro-batch's loss, and its gradient by the log-probs, before anything is accumulated.

Knows: columns, the registry's contract, which row is to blame for a number that is not finite. Does not know:
deepspeed, models or collectives.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gradwire.server.engines.deepspeed.packing import MicroBatch
from gradwire.server.errors import InvalidArgument
from gradwire.server.losses import LossConfig, LossNormalizer
from gradwire.server.losses.compute import compute_loss, gradient_of, refuse_nan
from gradwire.server.losses.family import GrpoConfig
from gradwire.server.losses.inputs import LossInputs, LossOutput
from gradwire.server.losses.metrics import Metric
from gradwire.server.losses.registry import Loss, LossFunction

log = logging.getLogger(__name__)

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class RankBatch:
    """This rank's rows, possibly none. `row_ids` are their numbers in the caller's batch, for errors and pairs."""

    input_ids: npt.NDArray[np.int32]
    row_offsets: npt.NDArray[np.int64]
    row_ids: npt.NDArray[np.int64]
    mask: Floats
    columns: Mapping[str, Floats]


@dataclass(frozen=True, slots=True)
class LossCall:
    """What all micro-batches of a call have in common."""

    loss: Loss
    config: LossConfig
    function: LossFunction
    whole: LossNormalizer


def with_version(config: LossConfig, batch: RankBatch, weight_version: int) -> LossConfig:
    """The configuration with `current_version` filled in, where it matters.

    Raises InvalidArgument naming the first row that a later version is said to have sampled.
    """
    if not isinstance(config, GrpoConfig) or not config.uses_versions:
        return config
    current = weight_version if config.current_version is None else config.current_version
    late = np.flatnonzero((batch.columns["versions"] > current) & (batch.mask != 0))
    if len(late):
        row = int(np.searchsorted(batch.row_offsets, late[0], side="right")) - 1
        raise InvalidArgument.at(
            "batch.versions",
            f"row {int(batch.row_ids[row])}, entry {int(late[0] - batch.row_offsets[row])} is "
            f"{batch.columns['versions'][late[0]]:.0f}, a later version than the {current} that trains; give "
            "current_version where versions are not this job's",
            reason="BATCH_INVALID",
        )
    return replace(config, current_version=current)


def loss_gradient(
    part: MicroBatch, batch: RankBatch, scored: Tensor, call: LossCall
) -> tuple[Tensor, Mapping[str, Metric]]:
    """Gradient [2, N] of the loss by log-probs and entropy [2, N], and metrics.

    The backward pass of the model comes later and is linear in it: once this is finite, a fault of the batch
    can no longer spoil the gradients of earlier calls. Raises InvalidArgument naming the caller's row.
    """
    log_probs, entropy = values = scored.detach().requires_grad_()
    check_finite(log_probs.detach(), part.rows, part.row_ids, batch.row_ids)
    inputs = loss_inputs(part, batch, log_probs, entropy)
    try:
        output = _computed(inputs, call)
        gradient = gradient_of(call.loss, output, values)
    except InvalidArgument as error:
        if error.__cause__ is not None:
            log.error("the loss %s failed", call.loss.name, exc_info=error.__cause__)
        raise
    value = float(output.loss.detach())
    wrong = (~gradient.isfinite()).any(0)
    if bool(wrong.any()):
        entry = int(wrong.nonzero()[0])
        row = int(batch.row_ids[part.row_ids[part.rows[entry]]])
        raise _not_finite(call, f"row {row}", value)
    if not math.isfinite(value):
        raise _not_finite(call, culprit(inputs, call), value)
    refuse_nan(call.loss, output)
    return gradient, output.metrics


def culprit(inputs: LossInputs, call: LossCall) -> str:
    """Which rows make a loss that is not finite, though its gradient is: each group of rows is tried by itself."""
    assert inputs.row_ids is not None
    largest, where = -1.0, ""
    group_of = inputs.row_ids // call.loss.rows_together
    for group in group_of.unique():
        members = (group_of == group).nonzero()[:, 0]
        value = abs(float(_computed(_only(inputs, members), call).loss.detach()))
        ids = ", ".join(str(row) for row in sorted(inputs.row_ids[members].tolist()))
        name = f"row {ids}" if len(members) == 1 else f"rows {ids}"
        if not math.isfinite(value):
            return name
        if value > largest:
            largest, where = value, f"the sum over rows; {name} has the largest loss, {value:.3g}"
    return where


def _only(inputs: LossInputs, members: Tensor) -> LossInputs:
    """The inputs of some rows of a micro-batch."""
    keep = torch.isin(inputs.rows, members)
    tensors = {
        field.name: value[keep]
        for field in fields(inputs)
        if field.name != "row_ids" and isinstance(value := getattr(inputs, field.name), Tensor)
    }
    tensors["rows"] = torch.searchsorted(members, tensors["rows"])
    assert inputs.row_ids is not None
    return LossInputs(**tensors, num_rows=len(members), row_ids=inputs.row_ids[members])


def _computed(inputs: LossInputs, call: LossCall) -> LossOutput:
    """The loss. Nothing was accumulated yet, so that a fault in an installed one need not end the job."""
    return compute_loss(call.loss, call.function, inputs, call.config, call.whole)


def _not_finite(call: LossCall, where: str, value: float) -> InvalidArgument:
    return InvalidArgument.at(
        "batch",
        f"the loss {call.loss.name!r} or its gradient is not finite (the micro-batch's loss is {value}), from {where}: "
        "its log-probs are too far from the policy's; leave the row out, or bound the ratio",
        reason="LOSS_NOT_FINITE",
    )


def loss_inputs(part: MicroBatch, batch: RankBatch, log_probs: Tensor, entropy: Tensor) -> LossInputs:
    """What a loss gets of a micro-batch whose log-probs and entropy [N] were computed."""
    device = log_probs.device

    def column(values: Floats) -> Tensor:
        return torch.from_numpy(values[part.source]).to(device=device, dtype=log_probs.dtype)

    return LossInputs(
        log_probs=log_probs,
        entropy=entropy,
        mask=column(batch.mask),
        rows=torch.from_numpy(part.rows).to(device),
        num_rows=len(part.row_ids),
        row_ids=torch.from_numpy(batch.row_ids[part.row_ids]).to(device),
        **{name: column(values) for name, values in batch.columns.items()},
    )


def check_finite(
    log_probs: Tensor, rows: npt.NDArray[np.int64], row_ids: npt.NDArray[np.int64], caller_ids: npt.NDArray[np.int64]
) -> None:
    """Raise InvalidArgument naming the caller's row of the first log-prob that is not finite."""
    wrong = ~log_probs.isfinite()
    if bool(wrong.any()):
        entry = int(wrong.nonzero()[0])
        raise InvalidArgument.at(
            "batch.input_ids",
            f"row {int(caller_ids[row_ids[rows[entry]]])}: the policy's log-prob is {float(log_probs[entry])} "
            "at a scored token",
            reason="LOG_PROB_NOT_FINITE",
        )
