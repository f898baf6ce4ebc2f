"""A weight update from the front's side: all of vLLM's verbs, or none of their effect.

The workers stage the new weights beside the old ones; nothing changes for sampling until the last
verb, which commits. What the workers do is in weight_transfer.py and worker/.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.engines.vllm.link import EngineLink
from gradwire.server.engines.vllm.versions import Versions
from gradwire.server.engines.weights import WeightManifest
from gradwire.server.errors import GradwireError, InvalidArgument, Unavailable


class WeightUpdates:
    """Updates of one engine, one at a time (the caller sees to that)."""

    def __init__(self, link: EngineLink, versions: Versions) -> None:
        self._link = link
        self._versions = versions
        self._ready = False

    async def apply(self, segment: str, manifest: WeightManifest, version: int) -> None:
        """Load a segment as weight version `version`. The manifest has been checked.

        On an error, or a cancellation before the commit, the old weights and version go on.
        Raises InvalidArgument when the segment is gone or too small.
        """
        with SharedSegment.attach(segment) as mapped:
            if mapped.size < manifest.total_bytes:
                raise InvalidArgument.at(
                    "manifest.total_bytes", f"{manifest.total_bytes}, but the segment has {mapped.size} bytes"
                )
            try:
                await self._stage(segment, manifest)
                # Before the commit: if this fails, the old weights have lost a cache and no more.
                await self._link.call(self._link.llm.reset_prefix_cache(reset_running_requests=True))
                await self._link.call_to_the_end(self._link.llm.finish_weight_update(self._versions.text(base=version)))
                self._versions.base = version
            except Unavailable:
                raise
            except (Exception, asyncio.CancelledError) as error:
                await self._link.call_to_the_end(self._link.llm.collective_rpc("gradwire_discard_update"))
                if isinstance(error, (GradwireError, asyncio.CancelledError)):
                    raise
                raise _failed(str(error)) from error

    async def _stage(self, segment: str, manifest: WeightManifest) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest, WeightTransferUpdateRequest

        link = self._link
        if not self._ready:
            await link.call(link.llm.init_weight_transfer_engine(WeightTransferInitRequest(init_info={})))
            self._ready = True
        await link.call(link.llm.start_weight_update())
        info = _update_info(segment, manifest)
        await link.call(link.llm.update_weights(WeightTransferUpdateRequest(update_info=info)))
        if failures := [text for text in await link.workers("update_failure") if text]:
            raise _failed(failures[0])


def _failed(reason: str) -> GradwireError:
    return GradwireError("WEIGHT_UPDATE_FAILED", f"the old weights stay: {reason}")


def _update_info(segment: str, manifest: WeightManifest) -> Mapping[str, Any]:
    """See weight_transfer.SharedMemoryUpdateInfo."""
    tensors = [(t.name, t.dtype, list(t.shape), t.offset, t.nbytes) for t in manifest.tensors]
    return {"segment": segment, "tensors": tensors}
