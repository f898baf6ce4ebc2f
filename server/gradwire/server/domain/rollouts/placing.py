"""Which job answers a call, in which rollout it is made, and recording around it where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gradwire.server.domain.caller import Caller
from gradwire.server.domain.registry import JobRegistry, SamplingJob
from gradwire.server.domain.rollouts.calls import Asked
from gradwire.server.domain.rollouts.rollout import Rollout
from gradwire.server.domain.rollouts.store import RolloutStore
from gradwire.server.engines.openai import Observer
from gradwire.server.errors import InvalidArgument


def place(
    jobs: JobRegistry, rollouts: RolloutStore, rollout_id: str, job_id: int, caller: Caller, *, field: str = ""
) -> tuple[SamplingJob, Rollout | None]:
    """The job and the rollout of a call; `field` is the one that names the job, in the caller's message.

    Job 0 is the rollout's, or the one that the server was started with. ResourceExhausted when the store is full.
    """
    if not rollout_id:
        return jobs.sampling(job_id, caller), None
    shelf = rollouts.shelf(caller.tenant)
    rollout = shelf.get(rollout_id)
    rollout.require_open()
    if job_id not in (0, rollout.job.job_id):
        raise InvalidArgument.at(field, f"job {job_id} is named, but the rollout is one of job {rollout.job.job_id}")
    shelf.require_room()
    return rollout.job, rollout


@contextmanager
def recording(rollout: Rollout | None, asked: Asked) -> Iterator[Observer | None]:
    """Around the sampling of a call: what records it, or None for a call that is made in no rollout."""
    if rollout is None:
        yield None
        return
    with rollout.recording(asked) as call:
        rollout.job.require_working()
        yield rollout.observer(call)
