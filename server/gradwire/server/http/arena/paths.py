"""Which call a path is, and of which deployment.

`/deployments/NAME` is a deployment's base URL. Its routes stand at the root, too, for a server with one deployment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote


class Route(StrEnum):
    """The calls. The values are names for logs, metrics and scopes."""

    STATUS = "Status"
    ACTION = "GetAction"
    PREDICT = "Predict"
    GENERATE = "Generate"
    STREAM = "GenerateStream"
    SESSIONS = "ListSessions"
    SESSION = "GetSession"
    FORGET = "DeleteSession"
    DEPLOYMENTS = "ListDeployments"
    DEPLOYMENT = "GetDeployment"
    DEPLOY = "Deploy"


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names. `session_id` is what stands in the path, which is anything."""

    routes: dict[str, Route]
    """By HTTP method."""
    deployment_id: str = ""
    session_id: str = ""


_CONTROLS = (Route.DEPLOYMENTS, Route.DEPLOYMENT, Route.DEPLOY)
_OF_DEPLOYMENT = {
    "status": {"GET": Route.STATUS},
    "get_action": {"POST": Route.ACTION},
    "predict": {"POST": Route.PREDICT},
    "generate": {"POST": Route.GENERATE},
    "generate_stream": {"POST": Route.STREAM},
    "sessions": {"GET": Route.SESSIONS},
}
_SESSION = {"GET": Route.SESSION, "DELETE": Route.FORGET}
_CONTROL = {
    "/api/cli/v1/inference/deployments/list": {"GET": Route.DEPLOYMENTS},
    "/api/cli/v1/inference/deployments/one": {"GET": Route.DEPLOYMENT},
    "/api/cli/v1/inference/deploy": {"POST": Route.DEPLOY},
}
_PATH = re.compile(r"(?:/deployments/(?P<deployment>[^/]+))?/(?P<rest>[^/]+)(?:/(?P<session>.+))?", re.DOTALL)


def target_of(path: str) -> Target | None:
    """None for a path that is none of the Arena's. `path` is decoded: nothing of it is a % any more."""
    if path in _CONTROL:
        return Target(_CONTROL[path])
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    deployment, session = found["deployment"] or "", found["session"]
    if session is not None:
        return Target(_SESSION, deployment, session) if found["rest"] == "sessions" else None
    routes = _OF_DEPLOYMENT.get(found["rest"])
    return None if routes is None else Target(routes, deployment)


def looks_like_ours(path: str) -> bool:
    """Whether an answer in the Arena's form suits a path, even where there is nothing at it."""
    return path.startswith(("/deployments/", "/api/cli/")) or target_of(path) is not None


def base_url(scheme: str, host: str, deployment_id: str) -> str:
    """Where a deployment's routes are."""
    return f"{scheme}://{host}/deployments/{quote(deployment_id, safe='')}"


def method_name(route: Route) -> str:
    """As gRPC writes a method, for the steps around each call. The control plane's are those of the service that does
    the same, and take its scopes."""
    service = "gradwire.v1.DeploymentService" if route in _CONTROLS else "gradwire.arena.v1"
    return f"/{service}/{route}"
