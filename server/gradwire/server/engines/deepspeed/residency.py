"""What of a rank is in memory: sleep, wake, and which work needs what.

On a CPU the bytes go into a file without a name (DeepSpeed's own offload_states frees nothing there, and asks for
its FusedAdam at stage 3 on a GPU); on a GPU they go into host memory. Storages are emptied and refilled in place,
so every view that DeepSpeed and autograd hold stays valid. Does not know: gRPC, or DeepSpeed's attributes.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import psutil  # type: ignore[import-untyped]
import torch

from gradwire.server.engines import host_memory
from gradwire.server.engines.deepspeed.collective import Ranks
from gradwire.server.engines.deepspeed.storages import Storages
from gradwire.server.engines.resident import resident_bytes
from gradwire.server.engines.spill import SpillFile
from gradwire.server.engines.training import TrainerPart
from gradwire.server.errors import FailedPrecondition, ResourceExhausted


class Copies(Protocol):
    """Bytes of some storages, elsewhere. Made from them; raises ResourceExhausted when there is no room."""

    def read_back(self, storages: Iterable[torch.UntypedStorage]) -> None:
        """Fill the storages, which have their sizes again, in the order in which they were given."""

    def close(self) -> None:
        """Give the room back."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose parts sleep, in the words of errors."""

    name: str
    reason: str
    waker: str  # the call that errors advise


TRAINER = Owner("trainer", "TRAINER_ASLEEP", "WakeTraining first (training.wake in Python)")
SCORER = Owner("log-prob job", "SAMPLER_ASLEEP", "Wake first (sampling.wake in Python)")  # as one on vLLM


class Residency:
    """One rank's parts, awake or asleep. `sleep` and `wake` are collectives."""

    def __init__(
        self, ranks: Ranks, parts: Mapping[TrainerPart, Callable[[], Storages]],
        *, of: Owner = TRAINER,
    ) -> None:  # fmt: skip
        """`parts` finds each part's storages as they are now; a part that is left out holds nothing."""
        self._owner = of
        self._ranks = ranks
        self._parts = parts
        self._asleep: dict[TrainerPart, _Sleeper] = {}

    @property
    def asleep(self) -> frozenset[TrainerPart]:
        """Parts that sleep."""
        return frozenset(self._asleep)

    def require(self, name: str, parts: frozenset[TrainerPart]) -> None:
        """Raises FailedPrecondition when a part that call `name` needs sleeps."""
        if missing := sorted(parts & self.asleep):
            raise FailedPrecondition(
                self._owner.reason,
                f"{_CALLS.get(name, name)} needs the {self._owner.name}'s {' and '.join(_TITLES[p] for p in missing)}, "
                f"which sleep; call {self._owner.waker}",
            )

    def sleep(self, parts: frozenset[TrainerPart]) -> bool:
        """Put parts to sleep; whether any was awake. On an error, on any rank, all stays as it was."""
        wanted = sorted(parts - self.asleep)
        sleepers = {part: _Sleeper(self._parts[part]()) for part in wanted if part in self._parts}
        try:
            self._ranks.attempt(lambda: _each(_Sleeper.copy, sleepers.values()))
        except BaseException:
            for sleeper in sleepers.values():
                sleeper.forget()
            raise
        for sleeper in sleepers.values():
            sleeper.free()
        self._asleep |= sleepers | {part: _Sleeper(Storages()) for part in wanted if part not in self._parts}
        release_unused()
        return bool(wanted)

    def wake(self) -> bool:
        """Wake everything; whether any part slept. ResourceExhausted leaves all ranks asleep, and whole."""
        sleepers = [self._asleep[part] for part in sorted(self._asleep)]
        try:
            self._ranks.attempt(lambda: _each(_Sleeper.allocate, sleepers))
        except BaseException:
            for sleeper in sleepers:
                sleeper.free()
            release_unused()
            raise
        for part in sorted(self._asleep):
            self._asleep.pop(part).read_back()
        release_unused()
        return bool(sleepers)


class _Sleeper:
    """One part's storages, on their way to sleep and back: copy, free; allocate, read_back."""

    def __init__(self, storages: Storages) -> None:
        self._storages = storages
        self._all = [*storages.kept, *storages.scratch]
        self._sizes = [storage.nbytes() for storage in self._all]
        self._copies: Copies | None = None

    def copy(self) -> None:
        """Put the bytes elsewhere; nothing is freed yet."""
        if self._storages.kept:
            on_cpu = self._storages.kept[0].device.type == "cpu"
            self._copies = (_OnDisk if on_cpu else _InHostMemory)(self._storages.kept)

    def forget(self) -> None:
        """Undo `copy`."""
        if self._copies is not None:
            self._copies.close()
            self._copies = None

    def free(self) -> None:
        for storage in self._all:
            storage.resize_(0)

    def allocate(self) -> None:
        """Give the storages their sizes again; what they hold is arbitrary."""
        try:
            for storage, nbytes in zip(self._all, self._sizes, strict=True):
                storage.resize_(nbytes)
        except (RuntimeError, MemoryError) as error:
            raise ResourceExhausted(
                "NO_MEMORY_TO_WAKE",
                f"the trainer needs {sum(self._sizes)} bytes to wake, and they are not free: it sleeps on. "
                f"Put the sampler to sleep, or make room otherwise, and wake it again ({str(error)[:200]})",
            ) from error

    def read_back(self) -> None:
        if self._copies is not None:
            self._copies.read_back(self._storages.kept)
        self.forget()


def _each(action: Callable[[_Sleeper], None], sleepers: Iterable[_Sleeper]) -> None:
    for sleeper in sleepers:
        action(sleeper)


class _OnDisk:
    """Copies of host memory in a file."""

    def __init__(self, storages: list[torch.UntypedStorage]) -> None:
        self._file = SpillFile(sum(storage.nbytes() for storage in storages))
        try:
            for storage in storages:
                self._file.write(_view(storage))
            self._file.finish()
        except BaseException:
            self._file.close()
            raise

    def read_back(self, storages: Iterable[torch.UntypedStorage]) -> None:
        for storage in storages:
            self._file.read_into(_view(storage))

    def close(self) -> None:
        self._file.close()


class _InHostMemory:
    """Copies of device memory. Not pinned: torch keeps pinned memory to itself after it was freed."""

    def __init__(self, storages: list[torch.UntypedStorage]) -> None:
        try:
            self._copies = [host_memory.whole(storage).cpu() for storage in storages]
        except (RuntimeError, MemoryError) as error:
            raise ResourceExhausted(
                "SPILL_FAILED", f"the host has no memory for what should sleep: {str(error)[:200]}"
            ) from error

    def read_back(self, storages: Iterable[torch.UntypedStorage]) -> None:
        for storage, copy in zip(storages, self._copies, strict=True):
            host_memory.whole(storage).copy_(copy)

    def close(self) -> None:
        self._copies.clear()


def release_unused() -> None:
    """Give back what the allocators hold without using it."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    host_memory.release_to_system()


def held_bytes() -> int:
    """What this process holds: of its device on a GPU, else of the machine's memory."""
    if torch.cuda.is_available():
        return int(torch.cuda.memory_reserved())
    return resident_bytes([psutil.Process()])


def _view(storage: torch.UntypedStorage) -> memoryview:
    return host_memory.bytes_of(host_memory.whole(storage))


_CALLS = {"ExportWeights": "a sync", "LoadWeights": "a sync to it"}  # what callers know a worker's call as
_TITLES = {TrainerPart.MODEL: "weights", TrainerPart.TRAINING: "gradients and optimizer state"}
