"""The rollouts of a server, a shelf for each tenant: in memory, bounded, and never for ever."""

from __future__ import annotations

from collections.abc import Callable

from gradwire.server.domain.registry import AnyJob
from gradwire.server.domain.rollouts.following import Limits
from gradwire.server.domain.rollouts.shelf import Shelf


class RolloutStore:
    """All shelves. `ended` is told the outcome of each rollout that ends."""

    def __init__(self, limits: Limits, ended: Callable[[str], None]) -> None:
        self._limits = limits
        self._ended = ended
        self._shelves: dict[str, Shelf] = {}

    def shelf(self, tenant: str) -> Shelf:
        """A tenant's."""
        if tenant not in self._shelves:
            self._shelves[tenant] = Shelf(tenant, self._limits, self._ended)
        return self._shelves[tenant]

    @property
    def num_bytes(self) -> int:
        """Bytes that are held."""
        return sum(shelf.num_bytes for shelf in self._shelves.values())

    def __len__(self) -> int:
        return sum(map(len, self._shelves.values()))

    async def end_job(self, job: AnyJob) -> None:
        """A hook of the registry: the job was destroyed."""
        for shelf in self._shelves.values():
            shelf.end_job(job)

    def dismiss(self) -> None:
        """End what follows and waits: the server is about to go."""
        for shelf in self._shelves.values():
            shelf.dismiss()

    def close(self) -> None:
        """The server stops."""
        for shelf in self._shelves.values():
            shelf.close()
