"""Which call a path is, whose sampler it asks, and the rollout that it is made in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs

from gradwire.server.engines.openai import Endpoint
from gradwire.server.errors import InvalidArgument

ROLLOUT_HEADER = "x-gradwire-rollout"
_PATH = re.compile(r"(?:/jobs/(?P<job>\d{1,18})|/rollouts/(?P<rollout>[\w.-]{1,100}))?/v1/(?P<rest>.+)")


@dataclass(frozen=True, slots=True)
class Target:
    """`endpoint` is None for the list of models, or for the one that `model` names."""

    endpoint: Endpoint | None
    job_id: int = 0  # 0: the rollout's, else the sampler that the server was started with
    model: str = ""
    rollout_id: str = ""  # of the path

    @property
    def method(self) -> str:
        """Name for logs, metrics and scopes."""
        names = {Endpoint.COMPLETIONS: "Completions", Endpoint.CHAT_COMPLETIONS: "ChatCompletions", None: "Models"}
        return f"/gradwire.openai.v1/{names[self.endpoint]}"

    @property
    def verb(self) -> str:
        """The HTTP method that it takes."""
        return "GET" if self.endpoint is None else "POST"


def target_of(path: str) -> Target | None:
    """None for a path that is none of OpenAI's."""
    found = _PATH.fullmatch(path.rstrip("/"))
    if found is None:
        return None
    job, rollout, rest = int(found["job"] or 0), found["rollout"] or "", found["rest"]
    if rest in list(Endpoint):
        return Target(Endpoint(rest), job, rollout_id=rollout)
    if rest == "models":
        return Target(None, job, rollout_id=rollout)
    if rest.startswith("models/"):
        return Target(None, job, rest.removeprefix("models/"), rollout)
    return None


def rollout_of(target: Target, headers: Mapping[str, str], query: bytes) -> str:
    """The rollout that a call is made in, by path, header or query; empty: in none. They must not disagree."""
    named = {target.rollout_id, headers.get(ROLLOUT_HEADER, "").strip()}
    if b"rollout=" in query:
        named.update(parse_qs(query.decode("latin-1")).get("rollout", []))
    named.discard("")
    if len(named) > 1:
        raise InvalidArgument.at("", f"the call names several rollouts: {', '.join(sorted(n[:100] for n in named))}")
    return named.pop() if named else ""
