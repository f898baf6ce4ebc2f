"""What the ranks of a job agree on. Everything here is a collective: all ranks must enter.

An error that only one rank meets must end the operation on all of them, or the others wait in a
collective that the first never enters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from gradwire.server.errors import Aborted, GradwireError

PEER_FAILED = "PEER_FAILED"

T = TypeVar("T")


class Ranks:
    """The ranks of one job. With one rank, nothing is sent."""

    def __init__(self, rank: int, world: int, device: torch.device) -> None:
        self.rank = rank
        self.world = world
        self.device = device

    def highest(self, value: int) -> int:
        """The largest of the ranks' values."""
        if self.world == 1:
            return value
        tensor = torch.tensor([value], dtype=torch.int64, device=self.device)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return int(tensor)

    def agree(self, error: GradwireError | None) -> None:
        """Raise on every rank if any rank has an error: its own where there is one, else Aborted."""
        failed = self.highest(int(error is not None))
        if error is not None:
            raise error
        if failed:
            raise Aborted(PEER_FAILED, "another rank of this job failed")

    def attempt(self, action: Callable[[], T]) -> T:
        """Do something local that may raise a GradwireError, on all ranks; all succeed or all raise."""
        result: T | None = None
        error: GradwireError | None = None
        try:
            result = action()
        except GradwireError as caught:
            error = caught
        self.agree(error)
        return result  # type: ignore[return-value]  # set when no rank has an error

    def average(self, tensors: Iterable[Tensor], *, bucket_numel: int = 1 << 24) -> None:
        """Average tensors over the ranks, in place, a bucket of `bucket_numel` numbers at a time."""
        if self.world == 1:
            return
        bucket: list[Tensor] = []
        held = 0
        for tensor in tensors:
            bucket.append(tensor)
            held += tensor.numel()
            if held >= bucket_numel:
                self._average_bucket(bucket)
                bucket, held = [], 0
        if bucket:
            self._average_bucket(bucket)

    def _average_bucket(self, bucket: list[Tensor]) -> None:
        flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
        dist.all_reduce(flat)
        flat /= self.world
        parts = flat.split([tensor.numel() for tensor in bucket])
        for tensor, part in zip(bucket, parts, strict=True):
            tensor.copy_(part.view_as(tensor))
