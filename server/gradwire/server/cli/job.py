"""`gradwire job list | destroy`: the jobs of a running server, such as those that a script left behind.

It asks the server (GRADWIRE_ADDRESS and, for its scope TRAINING, GRADWIRE_TOKEN or --token-file), which shows and ends
the jobs of the token's tenant.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from gradwire.client import GradwireError, Job, JobKind
from gradwire.server.cli.connecting import add_connection, connect, exit_code
from gradwire.server.cli.tables import show

_KINDS = [kind.value for kind in JobKind if kind is not JobKind.UNSPECIFIED]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `list` and `destroy`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    lists = actions.add_parser("list", help="jobs, the oldest first; LEASE says when one lapses without a heartbeat")
    lists.add_argument("--kind", choices=_KINDS, help="only these")
    destroy = actions.add_parser("destroy", help="end jobs after what they do just now; their checkpoints stay")
    destroy.add_argument("job_ids", type=int, nargs="+", metavar="ID", help="as `list` shows it")
    for action in (lists, destroy):
        add_connection(action)


def run(args: argparse.Namespace) -> int:
    """Exit code 0, or 1 with the reason on standard error."""
    return exit_code("job", args, lambda: _list(args) if args.action == "list" else _destroy(args))


async def _list(args: argparse.Namespace) -> int:
    async with connect(args) as client:
        rows = [_row(job) for job in await client.jobs.list(args.kind)]
    if args.json:
        print(json.dumps(rows))
    else:
        _show(rows)
    return 0


async def _destroy(args: argparse.Namespace) -> int:
    """All that can be; the first error is raised after."""
    destroyed: list[int] = []
    failed: GradwireError | None = None
    async with connect(args) as client:
        for job_id in dict.fromkeys(args.job_ids):
            try:
                await client.jobs.destroy(job_id)
            except GradwireError as error:
                failed = failed or error
                continue
            destroyed.append(job_id)
            if not args.json:
                print(f"destroyed job {job_id}")
    if args.json:
        print(json.dumps({"destroyed": destroyed}))
    if failed is not None:
        raise failed
    return 0


def _row(job: Job) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "kind": job.kind.value,
        "state": job.state.value,
        "error": job.error,
        "model": job.model,
        "weight_version": job.weight_version,
        "created_at": _time(job.created_at),
        "lease_expires_at": _time(job.lease_expires_at),
        "built_in": job.built_in,
    }


def _show(rows: Sequence[dict[str, Any]]) -> None:
    names = ("job_id", "kind", "state", "model", "weight_version", "created_at")
    show(
        ("JOB", "KIND", "STATE", "MODEL", "WEIGHTS", "CREATED", "LEASE", "WHY"),
        [[*(str(row[name]) for name in names), _lease(row), row["error"]] for row in rows],
    )


def _lease(row: dict[str, Any]) -> str:
    if row["built_in"]:
        return "the server's own"
    return str(row["lease_expires_at"] or "none")


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")
