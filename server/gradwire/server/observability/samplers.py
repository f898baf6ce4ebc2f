"""Prometheus metrics of the sampling jobs, asked for when somebody looks: between two looks they cost nothing.

vLLM's own are off. They are counted per token in the front process, and each of its engines takes the metrics of the
one before it out of the registry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from gradwire.server.engines.sampling import SampledTokens, SamplerLoad
from gradwire.server.errors import GradwireError

_ANSWER_S = 1.0  # an engine in a long step on few cores answers after it
_LABELS = ("job", "model")
_LOAD = (
    ("running", "gradwire_sampler_running_requests", "Requests that the engine works on"),
    ("waiting", "gradwire_sampler_waiting_requests", "Requests that wait for a place in the engine"),
    ("kv_cache_usage", "gradwire_sampler_kv_cache_usage_ratio", "Part of the key-value cache in use, from 0 to 1"),
)
_TOKENS = (
    ("prompt", "gradwire_sampler_prompt_tokens", "Tokens of prompts that were read"),
    ("cached", "gradwire_sampler_cached_prompt_tokens", "Those of them that were found in the prefix cache"),
    ("sampled", "gradwire_sampler_sampled_tokens", "Tokens that were sampled"),
)


class Sampler(Protocol):
    """What is asked of an engine."""

    @property
    def tokens(self) -> SampledTokens:
        """So far."""

    async def load(self) -> SamplerLoad:
        """Now."""


Samplers = Callable[[], Iterable[tuple[int, str, Sampler]]]
"""The id, the model and the engine of each sampling job whose engine has started."""


class SamplerMetrics:
    """Of all sampling jobs there are. An engine that is dead or does not answer has `up` 0 and no load."""

    def __init__(self, samplers: Samplers) -> None:
        self._samplers = samplers
        self._asked: dict[int, asyncio.Task[SamplerLoad | None]] = {}  # one question a job: scrapes may overlap

    async def text(self) -> bytes:
        """In Prometheus' format."""
        found = list(self._samplers())
        loads = await asyncio.gather(*(self._load(number, engine) for number, _, engine in found))
        registry = CollectorRegistry()
        registry.register(_Page(list(_families(found, loads))))
        return generate_latest(registry)

    async def _load(self, job_id: int, engine: Sampler) -> SamplerLoad | None:
        task = self._asked.get(job_id)
        if task is None:
            task = self._asked[job_id] = asyncio.get_running_loop().create_task(_ask(engine))
            task.add_done_callback(lambda _: self._asked.pop(job_id, None))
        done, _ = await asyncio.wait({task}, timeout=_ANSWER_S)
        return task.result() if done else None


class _Page:
    """What a registry collects: metrics that were made before."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


async def _ask(engine: Sampler) -> SamplerLoad | None:
    try:
        return await engine.load()
    except GradwireError:  # it is dead, or ends just now: others tell of that
        return None


def _families(found: list[tuple[int, str, Sampler]], loads: list[SamplerLoad | None]) -> Iterator[Metric]:
    labels = [(str(number), model) for number, model, _ in found]
    up = GaugeMetricFamily("gradwire_sampler_up", "Whether the engine of a sampling job answers", labels=_LABELS)
    for label, load in zip(labels, loads, strict=True):
        up.add_metric(label, float(load is not None))
    yield up
    for field, name, text in _LOAD:
        gauge = GaugeMetricFamily(name, text, labels=_LABELS)
        for label, load in zip(labels, loads, strict=True):
            if load is not None:
                gauge.add_metric(label, float(getattr(load, field)))
        yield gauge
    for field, name, text in _TOKENS:
        counter = CounterMetricFamily(name, text, labels=_LABELS)
        for label, (_, _, engine) in zip(labels, found, strict=True):
            counter.add_metric(label, float(getattr(engine.tokens, field)))
        yield counter
