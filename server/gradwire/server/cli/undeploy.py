"""`gradwire undeploy NAME`: ends a deployment of a running server. Its conversations stay stored."""

from __future__ import annotations

import argparse
import json

from gradwire.server.cli.connecting import add_connection, connect, exit_code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The name and the server."""
    parser.add_argument("name", help="as `gradwire deployments` shows it")
    add_connection(parser)


def run(args: argparse.Namespace) -> int:
    """Exit code 0, also when nothing was deployed under the name; 1 with the reason on standard error."""

    async def work() -> int:
        async with connect(args) as client:
            undeployed = await client.deployments.undeploy(args.name)
        if args.json:
            print(json.dumps({"deployment_id": args.name, "undeployed": undeployed}))
        else:
            print(f"undeployed {args.name}" if undeployed else f"nothing was deployed as {args.name}")
        return 0

    return exit_code("undeploy", args, work)
