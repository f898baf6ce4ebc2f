"""Rows of a batch dealt to a job's ranks, and the ranks' answers put together again. Does not know: torch."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from gradwire.server.engines.deepspeed import messages as m
from gradwire.server.engines.deepspeed.operations import WorkerGroup
from gradwire.server.engines.deepspeed.packing import split_rows
from gradwire.server.engines.training import ForwardResult, TrainingBatch
from gradwire.server.errors import InvalidArgument
from gradwire.server.losses.checks import default_mask
from gradwire.worker.v1 import worker_pb2 as pb

Shares = list[npt.NDArray[np.int64]]
"""Rows of each rank, by their numbers in the batch."""


async def deal(batch: TrainingBatch, mask: npt.NDArray[np.float32], world: int, *, together: int = 1) -> Shares:
    """Rows of each of `world` ranks; `together` neighbours are never parted."""
    if world == 1:
        return [np.arange(batch.num_rows)]
    return await asyncio.to_thread(split_rows, batch.input_ids, batch.row_offsets, mask, world, together=together)


async def forward(
    group: WorkerGroup, batch: TrainingBatch, mask: npt.NDArray[np.float32], world: int,
    make: Callable[..., pb.FwdNoGradRequest],
) -> tuple[Shares, Sequence[pb.FwdNoGradResponse]]:  # fmt: skip
    """Rows of each rank, and what it answers to `make(rows=...)`."""
    group.raise_if_gone()
    shares = await deal(batch, mask, world)
    # In a thread: it copies the batch.
    requests = await asyncio.to_thread(lambda: [make(rows=m.rows_to_proto(batch, mask, rows)) for rows in shares])
    return shares, await group.operate("FwdNoGrad", requests)


async def fwd_no_grad(
    group: WorkerGroup, batch: TrainingBatch, world: int, *, temperature: float, entropy: bool
) -> ForwardResult:
    """Log-probs of a checked batch's own tokens; where it has a loss mask, only there, and 0 elsewhere."""
    mask = default_mask(batch).copy()
    mask[batch.row_offsets[1:] - 1] = 0  # no token follows that it could score
    make = partial(pb.FwdNoGradRequest, temperature=temperature)
    shares, answers = await forward(group, replace(batch, columns={}), mask, world, make)
    return ForwardResult(
        log_probs=joined(batch, shares, [a.log_probs for a in answers])[:, 0],
        entropy=joined(batch, shares, [a.entropy for a in answers])[:, 0] if entropy else None,
        weight_version=answers[0].weight_version,  # of now may be newer: a step can be done by then
    )


def joined(
    batch: TrainingBatch, shares: Shares, parts: Sequence[bytes], dtype: str = "<f4", width: int = 1
) -> npt.NDArray[Any]:
    """The ranks' flat columns [T_r, width] in the batch's order, [T, width]."""
    whole = np.zeros((len(batch.input_ids), width), dtype)
    for rows, part in zip(shares, parts, strict=True):
        whole[m.positions_of(batch.row_offsets, rows)] = np.frombuffer(part, dtype).reshape(-1, width)
    return whole


def check_temperature(temperature: float) -> None:
    """Raises InvalidArgument."""
    if not 0 < temperature < math.inf:
        raise InvalidArgument.at("temperature", f"must be finite and > 0, is {temperature}")
