"""The few routes of the Arena's control plane that find deployments for its clients, and make one.

Its "experiment" is here what a deployment comes from: a bundle, or a training job by its number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gradwire.server.domain.caller import current_caller
from gradwire.server.domain.deploying import Deployer
from gradwire.server.domain.deployments import Deployment, Deployments, LanguageModel, PolicyBundle, Source
from gradwire.server.domain.sessions import MemoryScope
from gradwire.server.errors import InvalidArgument, NotFound
from gradwire.server.http.arena.answers import Answer
from gradwire.server.http.arena.asked import Asked
from gradwire.server.http.arena.conversations import iso
from gradwire.server.http.arena.paths import base_url
from gradwire.server.http.arena.requests import check_names, required

_FILTERS = ("name", "experimentName", "projectName")
_HOST = re.compile(r"[A-Za-z0-9._:\[\]-]{1,255}")
_SCOPES = {"user": MemoryScope.USER, "organization": MemoryScope.ORGANIZATION}


class Control:
    """Answers `{"ok": true, "data": ...}`."""

    def __init__(self, deployments: Deployments, deployer: Deployer) -> None:
        self._deployments = deployments
        self._deployer = deployer

    async def all(self, asked: Asked, answer: Answer) -> None:
        """`GET .../deployments/list?name=&experimentName=&projectName=`."""
        await asked.no_body()
        await answer.json({"ok": True, "data": self._rows(asked)})

    async def one(self, asked: Asked, answer: Answer) -> None:
        """`GET .../deployments/one?name=`: 404 when there is none."""
        await asked.no_body()
        rows = self._rows(asked)
        name = asked.parameters(*_FILTERS).get("name", "")
        if not name:
            raise InvalidArgument.at("name", "is required")
        if not rows:
            raise NotFound("deployment", name, f"there is no deployment {name[:200]!r}")
        await answer.json({"ok": True, "data": rows[0]})

    async def deploy(self, asked: Asked, answer: Answer) -> None:
        """`POST .../deploy`: a name that is taken is deployed anew, and keeps its memory scope."""
        wanted = await asked.read(_wanted)
        made = await self._deployer.deploy(
            current_caller(), wanted.deployment_id, wanted.source, memory_scope=wanted.scope, replacing=True
        )
        await answer.json({"ok": True, "data": _row(made, asked)})

    def _rows(self, asked: Asked) -> list[dict[str, Any]]:
        given = asked.parameters(*_FILTERS)
        rows = [_row(deployment, asked) for deployment in self._deployments.all()]
        fields = {"name": "name", "experimentName": "experiment_name", "projectName": "project_name"}
        return [row for row in rows if all(row[fields[key]] == value for key, value in given.items())]


@dataclass(frozen=True, slots=True)
class _Wanted:
    deployment_id: str
    source: Source
    scope: MemoryScope | None


def _wanted(body: Mapping[str, Any]) -> _Wanted:
    check_names(body, "experiment_name", "checkpoint", "memoryScope")
    experiment, checkpoint, scope = required(body, "experiment_name"), body.get("checkpoint"), body.get("memoryScope")
    if not isinstance(experiment, str) or not experiment.strip():
        raise InvalidArgument.at("experiment_name", "must be the name of a bundle, or a training job's number")
    if checkpoint is not None and not isinstance(checkpoint, str):
        raise InvalidArgument.at("checkpoint", "must be the name of a bundle inside of experiment_name")
    if scope is not None and (not isinstance(scope, str) or scope not in _SCOPES):
        raise InvalidArgument.at("memoryScope", f"must be user or organization, got {str(scope)[:40]!r}")
    name = experiment.strip()
    if name.isascii() and name.isdigit() and len(name) <= 18:
        if checkpoint is not None:
            raise InvalidArgument.at("checkpoint", "is for bundles; a training job's deployment follows its weights")
        source: Source = LanguageModel(training_job_id=int(name))
        deployment_id = f"training-job-{int(name)}"
    else:
        source = PolicyBundle(f"{name}/{checkpoint}" if checkpoint else name)
        deployment_id = re.sub(r"[^A-Za-z0-9._-]+", "-", name.removesuffix(".zip")).strip(".-_")[:100]
        if not deployment_id:
            raise InvalidArgument.at("experiment_name", "needs a letter or digit")
    return _Wanted(deployment_id, source, None if scope is None else _SCOPES[scope])


def _row(deployment: Deployment, asked: Asked) -> dict[str, Any]:
    source = deployment.source
    experiment = source.bundle if isinstance(source, PolicyBundle) else str(source.training_job_id or "")
    return {
        "name": deployment.deployment_id,
        "url": base_url(_scheme(asked), _host(asked), deployment.deployment_id),
        "status": "failed" if deployment.trouble else "running",
        "kind": str(deployment.kind),
        "version": deployment.version,
        "memory_scope": str(deployment.memory_scope),
        "experiment_name": experiment,
        "project_name": "",
        "deployed_at": iso(deployment.deployed_at),
    }


def _host(asked: Asked) -> str:
    """How the caller reaches this server: by the name that it used."""
    host = asked.call.metadata.get("host", "")
    if not _HOST.fullmatch(host):
        raise InvalidArgument.at("", "the Host header names no host: deployments have no URL without one")
    return host


def _scheme(asked: Asked) -> str:
    """A proxy that ends TLS says so. Whoever says it wrongly gets wrong URLs, and nobody else does."""
    said = asked.call.metadata.get("x-forwarded-proto", "")
    return said if said in ("http", "https") else asked.scheme
