"""Which agents are deployed, by name. Knows what a conversation needs of them; not what serves them."""

from __future__ import annotations

from dataclasses import dataclass

from gradwire.server.domain.sessions import MemoryScope
from gradwire.server.errors import AlreadyExists, InvalidArgument, NotFound


@dataclass(frozen=True, slots=True)
class Deployment:
    """An agent under a name. The scope of its memory is chosen once, with the first deployment of the name."""

    deployment_id: str
    memory_scope: MemoryScope = MemoryScope.USER


class Deployments:
    """The deployments of this server."""

    def __init__(self) -> None:
        self._by_id: dict[str, Deployment] = {}

    def add(self, deployment: Deployment) -> None:
        """Raises AlreadyExists."""
        if deployment.deployment_id in self._by_id:
            name = deployment.deployment_id
            raise AlreadyExists("DEPLOYMENT_EXISTS", f"deployment {name!r} is there already; undeploy it first")
        self._by_id[deployment.deployment_id] = deployment

    def remove(self, deployment_id: str) -> None:
        """Removing again is fine. Its conversations stay stored."""
        self._by_id.pop(deployment_id, None)

    def find(self, deployment_id: str) -> Deployment:
        """The one of that id; of an empty id the only one. Raises NotFound, and InvalidArgument when it is not clear
        which one is meant."""
        if deployment_id:
            found = self._by_id.get(deployment_id)
            if found is None:
                raise self._missing(deployment_id)
            return found
        if not self._by_id:
            raise self._missing("")
        if len(self._by_id) > 1:
            raise InvalidArgument.at("deployment_id", f"is needed: there are {self._names()}")
        return next(iter(self._by_id.values()))

    def _missing(self, deployment_id: str) -> NotFound:
        there = f"there are {self._names()}" if self._by_id else "nothing is deployed here"
        return NotFound("deployment", deployment_id, f"deployment_id: no deployment {deployment_id!r}; {there}")

    def _names(self) -> str:
        return ", ".join(sorted(self._by_id))
