"""`gradwire deploy NAME --bundle PATH | --llm`: puts an agent behind a name of a running server.

It takes the scope ADMIN.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from gradwire.client import Deployment, MemoryScope
from gradwire.server.cli.connecting import add_connection, connect, exit_code
from gradwire.server.cli.deployments import row

_SCOPES = {"user": MemoryScope.USER, "organization": MemoryScope.ORGANIZATION, "none": MemoryScope.UNSPECIFIED}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The name, what is behind it, and the server."""
    parser.add_argument("name", help="letters, digits and . _ -")
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--bundle", metavar="PATH", help="a policy or supervised model: a path below the bundle_root")
    kind.add_argument("--llm", action="store_true", help="the language model of a sampling job")
    parser.add_argument("--job", type=int, metavar="ID", help="sampling job (default: the server's own)")
    parser.add_argument("--follow", type=int, metavar="ID", help="training job whose synced weights answer")
    parser.add_argument("--system-prompt", metavar="TEXT", help="stands before each conversation")
    parser.add_argument(
        "--param", action="append", default=[], type=_param, metavar="NAME=VALUE",
        help="sampling parameter of requests that do not say, like temperature=0.2; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--memory-scope",
        choices=sorted(_SCOPES),
        help="who sees conversations; the first deployment of a name chooses it for ever (user)",
    )
    parser.add_argument(
        "--deterministic",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="of a policy: most likely actions where a request does not say (default: as the bundle says)",
    )
    parser.add_argument("--replace", action="store_true", help="replace what is there, without dropping a request")
    add_connection(parser)


def run(args: argparse.Namespace) -> int:
    """Exit code 0, or 1 with the reason on standard error."""

    async def work() -> int:
        _check(args)
        deployment = await _deploy(args)
        if args.json:
            print(json.dumps(row(deployment)))
        else:
            print(f"{deployment.deployment_id}: {deployment.kind}, version {deployment.version}, ready")
        return 0

    return exit_code("deploy", args, work)


def _check(args: argparse.Namespace) -> None:
    """Flags that say nothing about the other kind are mistakes, not noise."""
    for_llm = {"job": args.job, "follow": args.follow, "system-prompt": args.system_prompt, "param": args.param or None}
    of_other = {**for_llm, "memory-scope": args.memory_scope} if args.bundle else {"deterministic": args.deterministic}
    for name, value in of_other.items():
        if value is not None:
            raise ValueError(f"--{name} is for {'--llm' if args.bundle else '--bundle'}")


async def _deploy(args: argparse.Namespace) -> Deployment:
    async with connect(args) as client:
        if args.bundle:
            return await client.deployments.deploy_policy(
                args.name, args.bundle, deterministic=args.deterministic, replace=args.replace
            )
        return await client.deployments.deploy_llm(
            args.name,
            job=args.job,
            follow=args.follow,
            system_prompt=args.system_prompt or "",
            params=dict(args.param) or None,
            memory_scope=_SCOPES[args.memory_scope] if args.memory_scope else None,
            replace=args.replace,
        )


def _param(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value  # a stop string, say
