"""Low-rank adapters of one engine, from the front's side: names, versions, requests, updates.

An adapter keeps its number (vLLM's int id) over all its versions, so requests in flight go on with the new one.
What vLLM keys cached prefixes by holds the version: an older one's are never found again. What the workers do
is in worker/adapters.py.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.engines.vllm.link import EngineLink
from gradwire.server.engines.vllm.versions import Versions
from gradwire.server.engines.weights import AdapterSpec, WeightManifest
from gradwire.server.errors import FailedPrecondition, GradwireError, InvalidArgument, NotFound, Unavailable

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest


@dataclass(slots=True)
class _Adapter:
    number: int
    entering: int = 0  # requests between the choice of their adapter and vLLM's knowledge of them
    settled: asyncio.Event = field(default_factory=asyncio.Event)  # none is, since somebody waits for that
    requests: set[str] = field(default_factory=set)  # vLLM's ids


class Adapters:
    """Adapters of one engine. Updates and removals must not overlap (the caller sees to that)."""

    def __init__(self, link: EngineLink, versions: Versions, *, capacity: int) -> None:
        self._link = link
        self._versions = versions
        self._capacity = capacity
        self._named: dict[str, _Adapter] = {}
        self._leaving: dict[str, _Adapter] = {}
        self._numbers = itertools.count(1)

    def number(self, name: str) -> int:
        """vLLM's number of an adapter; 0 for the empty name, which is the model itself. Raises NotFound."""
        return self._get(name).number if name else 0

    @contextmanager
    def entering(self, name: str) -> Iterator[LoRARequest | None]:
        """What vLLM is told of the adapter of a request that is being added; None for the model itself."""
        if not name:
            yield None
            return
        from vllm.lora.request import LoRARequest

        adapter = self._get(name)
        version = self._versions.adapters[adapter.number]
        adapter.entering += 1
        try:
            yield LoRARequest(name, adapter.number, f"{name}@{adapter.number}.{version}")
        finally:
            adapter.entering -= 1
            if not adapter.entering:
                adapter.settled.set()

    def opened(self, name: str, request_id: str) -> None:
        """A request of the adapter is in the engine. Call it while it is `entering`."""
        if adapter := self._named.get(name) or self._leaving.get(name):
            adapter.requests.add(request_id)

    def closed(self, name: str, request_id: str) -> None:
        """It has left."""
        if name in self._named:
            self._named[name].requests.discard(request_id)

    async def update(self, name: str, spec: AdapterSpec, segment: str, manifest: WeightManifest, version: int) -> None:
        """Stage in all workers, then commit in all; on an error the old version goes on. The manifest was checked."""
        adapter = self._named.get(name) or _Adapter(next(self._numbers))
        self._require_slot(name)
        with SharedSegment.attach(segment) as mapped:
            if mapped.size < manifest.total_bytes:
                raise InvalidArgument.at(
                    "manifest.total_bytes", f"{manifest.total_bytes}, but the segment has {mapped.size} bytes"
                )
            try:
                tensors = [(t.name, t.dtype, list(t.shape), t.offset, t.nbytes) for t in manifest.tensors]
                await self._ask("stage_adapter", adapter.number, segment, tensors, spec.rank, spec.alpha)
                if adapter.requests:
                    # They go on with the new factors, so nothing that the old ones computed may stay.
                    await self._link.call(self._link.llm.reset_prefix_cache(reset_running_requests=True))
                await self._link.call_to_the_end(self._commit(name, adapter, version))
            except Unavailable:
                raise
            except (Exception, asyncio.CancelledError) as error:
                await self._link.call_to_the_end(self._link.workers("discard_adapter"))
                if isinstance(error, (GradwireError, asyncio.CancelledError)):
                    raise
                raise GradwireError("WEIGHT_UPDATE_FAILED", f"the adapter stays as it was: {error}") from error

    async def remove(self, name: str) -> None:
        """Forget an adapter once its requests are out of the engine."""
        adapter = self._leaving.pop(name, None) or self._named.pop(name, None)
        if adapter is None:
            return
        self._leaving[name] = adapter
        # A worker that met a request of an adapter that is gone would end the engine.
        if adapter.entering:
            adapter.settled.clear()
            await adapter.settled.wait()
        if adapter.requests:
            await self._link.llm.abort(list(adapter.requests), internal=True)
        await self._link.call_to_the_end(self._drop(adapter))
        del self._leaving[name]

    async def _commit(self, name: str, adapter: _Adapter, version: int) -> None:
        await self._ask("commit_adapter")
        self._named[name] = adapter
        self._versions.adapters[adapter.number] = version
        await self._link.llm.update_weight_version(self._versions.text())

    async def _drop(self, adapter: _Adapter) -> None:
        await self._ask("remove_adapter", adapter.number)
        self._versions.adapters.pop(adapter.number, None)
        await self._link.llm.update_weight_version(self._versions.text())

    async def _ask(self, method: str, *arguments: object) -> None:
        """Ask all workers; raises what the first of those says that failed."""
        if failures := [text for text in await self._link.workers(method, *arguments) if text]:
            raise GradwireError("WEIGHT_UPDATE_FAILED", f"the adapter stays as it was: {failures[0]}")

    def _get(self, name: str) -> _Adapter:
        if name not in self._named:
            raise NotFound("adapter", name, f"no adapter {name!r}")
        return self._named[name]

    def _require_slot(self, name: str) -> None:
        if name not in self._named and len(self._named) >= self._capacity:
            raise FailedPrecondition(
                "TOO_MANY_ADAPTERS", f"the sampler holds {len(self._named)} of at most {self._capacity} adapters"
            )
