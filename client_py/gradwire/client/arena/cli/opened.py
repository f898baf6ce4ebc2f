"""The deployment that a command is about, opened."""

from __future__ import annotations

import argparse
from types import TracebackType
from typing import Self

from gradwire.client.arena.agent import Agent
from gradwire.client.arena.cli.state import State
from gradwire.client.arena.endpoint import server_url
from gradwire.client.arena.models import StatusResponse
from gradwire.client.config import TLSConfig


class Opened:
    """An agent and what is remembered of it. The deployment is the one named, the current one, or the only one."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.state = State()
        base, deployment = self._which(args)
        self.agent = Agent(
            base,
            deployment=deployment,
            api_key=args.token_file.read_text().strip() if args.token_file else None,
            timeout=args.timeout,
            tls=TLSConfig(root_certificates=args.ca) if args.ca else None,
        )
        self.status: StatusResponse = self.agent.status()
        place = self.agent._async._place
        self._address = server_url(place.address)
        self._deployment = self.status.deployment_id or place.deployment
        self.key = f"{self._address}/{self._deployment}"
        """Names the deployment: two servers' deployments of one name are two."""

    def _which(self, args: argparse.Namespace) -> tuple[str, str]:
        named = args.deployment or ""
        if "://" in named:
            if args.address:
                raise ValueError("the deployment is given as an endpoint; leave --address out")
            return named, ""
        current = None if named or args.address else self.state.current
        return current or (server_url(args.address), named)

    @property
    def session(self) -> str | None:
        """The chat that prompts continue."""
        return self.state.session(self.key)

    def select(self) -> None:
        """Makes it the current one."""
        self.state.choose(self._address, self._deployment)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.agent.close()
