"""Adapters of a sampling job: which one a request uses, and who may sync what under which name.

Each tenant has names of its own; the slots are the sampler's. DEFAULT is what a sync without a name gives, and
what requests without a name use, so that a loop with one LoRA job reads like one that trains all weights. BASE
is the model itself. A whole model that is synced ends DEFAULT: the last sync without a name decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from gradwire.server.domain.bases import Base
from gradwire.server.domain.jobs import Adapter
from gradwire.server.domain.registry import AnyJob, SamplingJob, TrainingJob
from gradwire.server.engines.sampling import MAX_LORA_RANK, SamplerConfig
from gradwire.server.engines.training import LoraConfig
from gradwire.server.errors import FailedPrecondition, InvalidArgument, NotFound

DEFAULT = "default"
BASE = "base"


@dataclass(frozen=True, slots=True)
class Served:
    """What a request is served by: an adapter by its engine's name for it (empty: the model itself)."""

    engine_name: str
    weight_version: int
    since: float  # Unix seconds
    trouble: str = ""  # why it cannot serve now

    @property
    def which(self) -> tuple[str, ...]:
        """What an engine's norm and checksums take: nothing for the model itself."""
        return (self.engine_name,) if self.engine_name else ()


def served(job: AnyJob, name: str, tenant: str, *, field: str = "adapter") -> Served:
    """The adapter of a request. Raises NotFound, with the caller's adapters, for one that is not there."""
    adapter = job.adapters.get((tenant, name or DEFAULT))
    if adapter is not None:
        return Served(adapter.engine_name, adapter.weight_version, adapter.since, _trouble(job, adapter))
    if name in ("", BASE):
        return Served("", job.weight_version, job.version_since)
    known = ", ".join([BASE, *(a.name for a in of_tenant(job, tenant))])
    raise NotFound("adapter", name, f"{field}: {job.name} has no adapter {name!r}; there are: {known}")


def able(job: AnyJob, name: str, tenant: str, *, field: str = "adapter") -> Served:
    """As `served`, of one that can compute. Raises FailedPrecondition for one whose base the job has lost."""
    found = served(job, name, tenant, field=field)
    if found.trouble:
        raise FailedPrecondition("ADAPTER_BASE_DIFFERS", found.trouble, subject=job.name)
    return found


def _trouble(job: AnyJob, adapter: Adapter) -> str:
    if not adapter.trained_on:
        return ""
    return (
        f"the adapter {adapter.name!r} was trained on {adapter.trained_on}, but {job.name} now serves "
        f"{job.base.words}: sync it again from a job that trains on that, or sync with merge ({BASE!r} is the model "
        "itself)"
    )


def rebase(job: SamplingJob, base: Base, before: Base) -> list[Adapter]:
    """The job's own weights are `base` now. Those of its adapters that this spoils, which none can use any more."""
    job.base = base
    if base == before:
        return []
    spoilt = [(key, adapter) for key, adapter in job.adapters.items() if not adapter.trained_on]
    for key, adapter in spoilt:
        job.adapters[key] = replace(adapter, trained_on=before.words)
    return [adapter for _, adapter in spoilt]


def of_tenant(job: AnyJob, tenant: str) -> list[Adapter]:
    """The tenant's adapters, by name."""
    return sorted((a for (owner, _), a in job.adapters.items() if owner == tenant), key=lambda adapter: adapter.name)


def engine_name(tenant: str, name: str) -> str:
    """What the engine calls it: no two tenants' adapters are one."""
    return f"{tenant}/{name}"


def check_adapter_sync(
    source: TrainingJob, target: AnyJob, name: str, tenant: str, *, lives: Callable[[int], bool]
) -> LoraConfig:
    """The adapter's configuration, when it can go to the sampler under this name.

    `lives` tells whether a job is still there: the name of one that is not is free. Raises InvalidArgument
    or FailedPrecondition.
    """
    lora = source.engine.config.lora
    assert lora is not None
    config = target.config
    if name == BASE:
        raise InvalidArgument.at("adapter", f"{BASE!r} names the model itself; take another name")
    if not isinstance(config, SamplerConfig) or not config.max_loras:
        raise FailedPrecondition(
            "NO_ADAPTER_SLOTS",
            f"{target.name} has no slots for adapters: sync with merge, which carries the whole model, or make the "
            "sampling job with max_loras",
            subject=target.name,
        )
    if lora.rank > config.max_lora_rank:
        if lora.rank > MAX_LORA_RANK:
            advice = f"sync with merge; no sampler takes an adapter of more than {MAX_LORA_RANK}"
        else:
            advice = f"sync with merge, or make the sampling job with max_lora_rank {lora.rank}"
        raise FailedPrecondition(
            "ADAPTER_RANK_TOO_HIGH",
            f"{source.name} trains rank {lora.rank}, {target.name} takes at most max_lora_rank {config.max_lora_rank}: "
            f"{advice}",
            subject=target.name,
        )
    held = target.adapters.get((tenant, name))
    if held is not None and held.training_job_id != source.job_id and lives(held.training_job_id):
        raise FailedPrecondition(
            "ADAPTER_NAME_TAKEN",
            f"adapter: {name!r} of {target.name} is training_job/{held.training_job_id}'s; give another name, "
            "or unload it first",
            subject=target.name,
        )
    if held is None and len(target.adapters) >= config.max_loras:
        known = ", ".join(a.name for a in of_tenant(target, tenant)) or "none of yours"
        raise FailedPrecondition(
            "TOO_MANY_ADAPTERS",
            f"{target.name} holds {len(target.adapters)} of at most {config.max_loras} adapters ({known}); unload one, "
            "or make the sampling job with more max_loras",
            subject=target.name,
        )
    return lora


async def unload(job: SamplingJob, name: str, tenant: str) -> None:
    """Take an adapter out; requests name it in vain from now on, and those that are in the engine end.

    Run it under the job's lock of weights. Raises NotFound.
    """
    known = served(job, name, tenant).engine_name
    if not known:
        raise NotFound("adapter", name or DEFAULT, f"adapter: {job.name} has no adapter {name or DEFAULT!r}")
    adapter = job.adapters.pop((tenant, name or DEFAULT))
    await job.engine.remove_adapter(adapter.engine_name)
    job.tell(f"adapter {adapter.name} was unloaded")


def note(job: SamplingJob, tenant: str, name: str, source: TrainingJob, version: int, rank: int) -> None:
    """An adapter was loaded."""
    made = Adapter(name, engine_name(tenant, name), version, source.job_id, rank, time.time())
    job.adapters[tenant, name] = made
    job.tell(f"adapter {name}: weight version {version}")
