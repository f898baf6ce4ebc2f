"""`gradwire deployments`: the deployments of a running server."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from gradwire.client import Deployment, LanguageModel, MemoryScope
from gradwire.server.cli.connecting import add_connection, connect, exit_code
from gradwire.server.cli.tables import show

_COLUMNS = ("deployment_id", "kind", "state", "version", "weight_version", "memory_scope", "source", "error")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The server."""
    add_connection(parser)


def run(args: argparse.Namespace) -> int:
    """Exit code 0, or 1 with the reason on standard error."""

    async def work() -> int:
        async with connect(args) as client:
            found = await client.deployments.list()
        if args.json:
            print(json.dumps([row(deployment) for deployment in found]))
        else:
            _show(found)
        return 0

    return exit_code("deployments", args, work)


def row(deployment: Deployment) -> dict[str, Any]:
    """A deployment as JSON."""
    source = deployment.source
    found: dict[str, Any] = {
        "deployment_id": deployment.deployment_id,
        "kind": deployment.kind.value,
        "state": deployment.state.value,
        "error": deployment.error,
        "version": deployment.version,
        "instance_id": deployment.instance_id,
        "weight_version": deployment.weight_version,
        "weights_training_job_id": deployment.weights_training_job_id,
        "deployed_at": deployment.deployed_at.isoformat(timespec="seconds") if deployment.deployed_at else None,
    }
    if isinstance(source, LanguageModel):
        nobody = deployment.memory_scope is MemoryScope.UNSPECIFIED
        found["memory_scope"] = "none" if nobody else deployment.memory_scope.value
        return {**found, "job_id": source.job_id, "training_job_id": source.training_job_id}
    return {**found, "bundle": source.bundle, "deterministic": source.deterministic}


def _source(fields: dict[str, Any]) -> str:
    if "bundle" in fields:
        return str(fields["bundle"])
    sampler = f"job {fields['job_id']}" if fields["job_id"] else "the server's model"
    return f"{sampler}, follows {fields['training_job_id']}" if fields["training_job_id"] else sampler


def _show(deployments: Sequence[Deployment]) -> None:
    rows = []
    for deployment in deployments:
        fields = row(deployment)
        fields["source"] = _source(fields)
        rows.append([fields.get(name) for name in _COLUMNS])
    show(("NAME", "KIND", "STATE", "VERSION", "WEIGHTS", "MEMORY", "SOURCE", "WHY"), rows)
