"""Flags of the commands that ask a running server, and the client that they make."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from gradwire.client import AsyncClient, GradwireError, TLSConfig
from gradwire.client.reporting import report
from gradwire.server.cli import missing_package
from gradwire.server.cli.usage import add_json

DEFAULT_TIMEOUT_S = 600.0


def add_connection(parser: argparse.ArgumentParser) -> None:
    """--server, --token-file, --ca and --json. A token is no flag, since other users of a machine see those."""
    parser.add_argument(
        "--server", "--address", dest="server", metavar="ADDRESS", help="the server (GRADWIRE_ADDRESS, 127.0.0.1:50051)"
    )
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE", help="file that holds the token (default: GRADWIRE_TOKEN holds it)"
    )
    parser.add_argument("--ca", type=Path, metavar="FILE.pem", help="certificates that the server's descends from")
    add_json(parser)


def connect(args: argparse.Namespace, timeout_s: float = DEFAULT_TIMEOUT_S) -> AsyncClient:
    """A client as the flags say. ValueError for an address or a token that cannot be; OSError for a file that cannot
    be read."""
    token = args.token_file.read_text().strip() if args.token_file else None
    tls = TLSConfig(root_certificates=args.ca) if args.ca else None
    return AsyncClient(args.server, token=token, tls=tls, timeout=timeout_s)


def exit_code(command: str, args: argparse.Namespace, work: Callable[[], Awaitable[int]]) -> int:
    """What `work` says; 1, with the reason on standard error (as JSON with --json), when it fails."""

    async def run() -> int:
        return await work()

    try:
        return asyncio.run(run())
    except ModuleNotFoundError as error:
        return missing_package(command, error, for_programs=args.json)
    except BrokenPipeError:
        raise  # whoever read has had enough, which is no failure of the command's: `main`
    except (GradwireError, ImportError, OSError, ValueError, TypeError) as error:
        report(command, error, for_programs=args.json)
        return 1
