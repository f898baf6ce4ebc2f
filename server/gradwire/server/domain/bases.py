"""What whole model a job computes with, and whether the adapter of one job fits the model of another.

An adapter only means something on the weights that it was trained on. Where these come from is known of both sides
and costs nothing to compare; where the places differ, the weights may still be the same: then checksums decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.engines.scoring import LogProbConfig
from gradwire.server.engines.training import TrainingConfig
from gradwire.server.engines.weights import SAFETENSORS_DTYPES, differing
from gradwire.server.errors import FailedPrecondition

if TYPE_CHECKING:  # a job has a base
    from gradwire.server.domain.registry import AnyJob, SamplingJob, TrainingJob

Origin = Callable[[str], tuple[int, int] | None]
"""Of a checkpoint's model folder: the job of this server that wrote it, and its weight version."""


@dataclass(frozen=True, slots=True)
class Base:
    """A whole model's weights by where they come from: equal ones are the same, others may be, too."""

    place: str  # a folder, a training job or an update from outside
    version: int = 0  # of a training job's weights
    words: str = field(default="", compare=False)  # for people: "tiny"
    training_job_id: int = field(default=0, compare=False)


def loaded(config: TrainingConfig | SamplerConfig | LogProbConfig) -> Base:
    """The model as it lies in its folder."""
    return Base(config.model_path or config.model, words=config.model)


def trained(job_id: int, version: int) -> Base:
    """All weights of a training job, an adapter's added to them where it trains one."""
    name = f"training_job/{job_id}"
    return Base(name, version, f"the weights of {name} in version {version}", job_id)


def from_outside(update_id: str, version: int) -> Base:
    """Those of a trainer outside this server."""
    return Base(f"update/{update_id}", version, f"weights from outside this server in version {version}")


class Bases:
    """One per server. Remembers what it found out about a trainer and a sampler until the sampler's base changes."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._verdicts: dict[tuple[int, int], tuple[Base, bool]] = {}

    def loaded(self, job: AnyJob) -> Base:
        """The model that a job began with; what a job's checkpoint holds is that job's weights."""
        base = loaded(job.config)
        origin = self._origin(base.place)
        return base if origin is None else Base(f"training_job/{origin[0]}", origin[1], base.words, origin[0])

    def served(self, job: SamplingJob) -> Base:
        """What a sampler computes with, adapters aside."""
        return self.loaded(job) if job.base == loaded(job.config) else job.base

    def carried(self, source: TrainingJob, target: AnyJob) -> Base:
        """What `target` has after a sync of all weights: version 0 is the model that the trainer loaded."""
        dtype = source.engine.config.dtype
        if source.engine.weight_version == 0 and dtype in ("float32", target.engine.info.dtype):  # it rounded nothing
            return self.loaded(source)
        return trained(source.job_id, source.engine.weight_version)

    async def require_same(self, source: TrainingJob, target: SamplingJob) -> None:
        """Raises FailedPrecondition unless the adapter of `source` is trained on what `target` serves.

        Run it under the target's lock of weights. The first time it may read all weights of both sides.
        """
        ours, theirs = self.loaded(source), self.served(target)
        if ours == theirs:
            return
        pair = source.job_id, target.job_id
        known = self._verdicts.get(pair)
        if known is None or known[0] != theirs:
            known = self._verdicts[pair] = theirs, await _same_bytes(source, target)
        if not known[1]:
            raise _differs(source, target, ours, theirs)

    def forget(self, job: AnyJob) -> None:
        """A job ended."""
        self._verdicts = {pair: known for pair, known in self._verdicts.items() if job.job_id not in pair}


async def _same_bytes(source: TrainingJob, target: SamplingJob) -> bool:
    dtype = SAFETENSORS_DTYPES[target.engine.info.dtype]
    return not differing(*await asyncio.gather(source.engine.checksums(dtype, base=True), target.engine.checksums()))


def _differs(source: TrainingJob, target: SamplingJob, ours: Base, theirs: Base) -> FailedPrecondition:
    other = (
        f"; or train the adapter on a checkpoint of training_job/{theirs.training_job_id}"
        if theirs.training_job_id
        else ""
    )
    return FailedPrecondition(
        "ADAPTER_BASE_DIFFERS",
        f"{source.name} trains its adapter on {ours.words}, but {target.name} serves {theirs.words}: it would sample "
        "from another policy than the one that is trained. Sync with merge, which carries the whole model, or into a "
        f"sampling job that serves {ours.words}{other}",
        subject=target.name,
    )
