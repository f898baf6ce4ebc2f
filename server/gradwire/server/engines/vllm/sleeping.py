"""Sleep and wake from the front's side: what is asleep, and which orders are legal.

How memory is freed is the workers' business: vLLM's own on a GPU, worker/cpu_sleep.py on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradwire.server.engines.vllm.link import EngineLink
from gradwire.server.engines.vllm.versions import Versions
from gradwire.server.engines.weights import MemoryReport
from gradwire.server.errors import FailedPrecondition, InvalidArgument, ResourceExhausted, Unavailable

TAGS = ("weights", "kv_cache")  # in the order in which they may wake


class SleepState:
    """What of one engine is asleep. Calls must not overlap (the caller sees to that)."""

    def __init__(self, link: EngineLink, versions: Versions) -> None:
        self._link = link
        self._versions = versions
        self._asleep: set[str] = set()
        self._level = 0

    def __bool__(self) -> bool:
        return bool(self._asleep)

    def require_awake(self, tags: Sequence[str]) -> None:
        """Raises FailedPrecondition when any of these is asleep."""
        if self._asleep.intersection(tags):
            raise FailedPrecondition(
                "SAMPLER_ASLEEP",
                f"the engine's {' and '.join(sorted(self._asleep))} are asleep; call Wake first "
                "(sampling.wake in Python)",
            )

    async def sleep(self, level: int, *, paused: bool) -> MemoryReport:
        """Put all to sleep; what sleeps already stays at its level. `paused`: sampling was paused before.

        Raises ResourceExhausted when there is no room for what sleeps; then all is awake as before.
        """
        if level not in (1, 2):
            raise InvalidArgument.at("level", f"must be 1 or 2, not {level}")
        before = await self._link.memory()
        awake = set(TAGS) - self._asleep
        if not awake:
            return MemoryReport(before, before, changed=False)
        if "weights" in awake:
            self._level = level
        self._asleep = set(TAGS)  # first: no request may come in any more
        try:
            await self._link.call_to_the_end(self._link.llm.sleep(level, mode="abort"))
        except Unavailable:
            raise
        except Exception as error:
            await self._undo(awake, paused=paused)
            raise ResourceExhausted("SLEEP_FAILED", f"the sampler stays as it was: {_text(error)}") from error
        return MemoryReport(before, await self._link.memory())

    async def wake(self, tags: Sequence[str] | None, *, paused: bool) -> MemoryReport:
        """Wake these (None: all). `paused`: sampling stays paused when all is awake."""
        wanted = set(TAGS if tags is None else tags)
        if unknown := wanted - set(TAGS):
            raise InvalidArgument.at("tags", f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(TAGS)}")
        before = await self._link.memory()
        wanted &= self._asleep
        if "kv_cache" in wanted and "weights" in self._asleep - wanted:
            raise FailedPrecondition("WEIGHTS_ASLEEP", 'wake "weights" before "kv_cache"')
        for tag in [tag for tag in TAGS if tag in wanted]:
            await self._wake(tag)
            if self._asleep == {tag} and paused:  # vLLM resumes by itself when all is awake
                await self._link.call(self._link.llm.pause_generation(mode="keep", clear_cache=False))
            self._asleep.discard(tag)
        return MemoryReport(before, await self._link.memory(), changed=bool(wanted))

    async def _wake(self, tag: str) -> None:
        llm = self._link.llm
        await self._link.call_to_the_end(llm.wake_up([tag]))
        if tag == "weights" and self._level == 2:
            if not self._link.cpu:  # on the CPU waking has loaded them
                await self._link.workers("reload_from_folder")
            self._versions.base = 0
            await self._link.call(llm.update_weight_version(self._versions.text()))

    async def _undo(self, awake: set[str], *, paused: bool) -> None:
        """After a sleep that failed: a worker that did fall asleep wakes, and vLLM's scheduler goes on.

        vLLM itself believes that nothing sleeps, so the workers are asked directly.
        """
        await self._link.call_to_the_end(self._link.llm.collective_rpc("wake_up", args=(sorted(awake),)))
        if awake == set(TAGS) and not paused:
            await self._link.call(self._link.llm.resume_generation())
        self._asleep -= awake


def _text(error: Exception) -> str:
    """A worker's error comes wrapped in vLLM's words; its own stand at the end of the first line."""
    return str(error).strip().splitlines()[0][:500] if str(error).strip() else type(error).__name__
