"""Which call a path is, and whose sampler it asks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gradwire.server.engines.openai import Endpoint

_PATH = re.compile(r"(?:/jobs/(?P<job>\d{1,18}))?/v1/(?P<rest>.+)")


@dataclass(frozen=True, slots=True)
class Target:
    """`endpoint` is None for the list of models, or for the one that `model` names."""

    endpoint: Endpoint | None
    job_id: int = 0  # 0: the sampler that the server was started with
    model: str = ""

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
    job, rest = int(found["job"] or 0), found["rest"]
    if rest in list(Endpoint):
        return Target(Endpoint(rest), job)
    if rest == "models":
        return Target(None, job)
    if rest.startswith("models/"):
        return Target(None, job, rest.removeprefix("models/"))
    return None
