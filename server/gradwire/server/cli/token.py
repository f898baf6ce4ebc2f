"""`gradwire token create | list | revoke`: who may use a server.

It asks a running server (GRADWIRE_ADDRESS and, for its scope ADMIN, GRADWIRE_TOKEN or --token-file), or works on the
database itself with --database: before the first start, and when all tokens are lost. Secrets are no flags, since other
users of a machine see those. Only the answer goes to stdout, so `TOKEN=$(gradwire token create ...)` works in a script.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Protocol

from gradwire.client import CreatedToken, Token
from gradwire.server.cli.connecting import add_connection, connect, exit_code
from gradwire.server.cli.tables import show

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class TokenAdmin(Protocol):
    """What `client.admin` and the database have in common."""

    async def create_token(
        self,
        tenant: str,
        scopes: Sequence[str],
        *,
        description: str = "",
        kind: str | None = None,
        lifetime_s: float | None = None,
        user: str = "",
    ) -> CreatedToken:
        """A token and its secret."""

    async def list_tokens(self, tenant: str = "") -> tuple[Token, ...]:
        """The newest first."""

    async def revoke_token(self, token: str) -> None:
        """End it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `create`, `list` and `revoke`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="make a token, and print its secret this once")
    create.add_argument("--tenant", required=True, help="organisation or person that it acts for")
    create.add_argument(
        "--scope", action="append", required=True, choices=["inference", "training", "admin"], help="may be repeated"
    )
    create.add_argument("--user", default="", help="person within the tenant, whose conversations it reaches")
    create.add_argument(
        "--organization", action="store_true", help="acts for the organisation's own users, whom each call names"
    )
    create.add_argument("--description", default="", help="what it is for")
    create.add_argument("--lifetime", type=_seconds, metavar="TIME", help="like 30d, 12h, 90m (default: no end)")
    lists = actions.add_parser("list", help="tokens, the newest first, without their secrets")
    lists.add_argument("--tenant", default="", help="only this one's")
    revoke = actions.add_parser("revoke", help="end a token")
    revoke.add_argument("token_id", help="as `list` shows it")
    for action in (create, lists, revoke):
        add_connection(action)
        action.add_argument(
            "--database", metavar="PATH|URL", help="instead of a server: its data folder or file, or postgresql://..."
        )


def run(args: argparse.Namespace) -> int:
    """Exit code 0, or 1 with the reason on standard error."""
    return exit_code("token", args, lambda: _run(args))


async def _run(args: argparse.Namespace) -> int:
    async with _admin(args) as admin:
        match args.action:
            case "create":
                _show_created(await _create(args, admin), args.json)
            case "list":
                _show(await admin.list_tokens(args.tenant), args.json)
            case "revoke":
                await admin.revoke_token(args.token_id)
                print(json.dumps({"revoked": args.token_id}) if args.json else f"revoked {args.token_id}")
    return 0


@asynccontextmanager
async def _admin(args: argparse.Namespace) -> AsyncIterator[TokenAdmin]:
    if args.database is not None:
        from gradwire.server.cli.offline_tokens import open_offline  # here: who asks a server needs no database

        async with open_offline(args.database, create=args.action == "create") as offline:
            yield offline
        return
    async with connect(args, timeout_s=30.0) as client:
        yield client.admin


async def _create(args: argparse.Namespace, admin: TokenAdmin) -> CreatedToken:
    return await admin.create_token(
        args.tenant,
        args.scope,
        description=args.description,
        kind="organization" if args.organization else "profile",
        lifetime_s=args.lifetime,
        user=args.user,
    )


def _show_created(created: CreatedToken, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**_row(created.token), "secret": created.secret}))
        return
    print(f"token {created.token.token_id}; the secret is shown only this once:", file=sys.stderr)
    print(created.secret)


def _show(tokens: Sequence[Token], as_json: bool) -> None:
    rows = [_row(token) for token in tokens]
    if as_json:
        print(json.dumps(rows))
        return
    show(
        ("TOKEN", "KIND", "TENANT", "USER", "SCOPES", "CREATED", "EXPIRES", "REVOKED", "FOR"),
        [[",".join(value) if isinstance(value, list) else value for value in row.values()] for row in rows],
    )


def _row(token: Token) -> dict[str, Any]:
    return {
        "token_id": token.token_id,
        "kind": token.kind.value,
        "tenant": token.tenant,
        "user": token.user,
        "scopes": [scope.value for scope in token.scopes],
        "created_at": _time(token.created_at),
        "expires_at": _time(token.expires_at),
        "revoked_at": _time(token.revoked_at),
        "description": token.description,
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="seconds")


def _seconds(text: str) -> float:
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isascii() or not number.isdigit() or int(number) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write a number with s, m, h or d, like 30d")
    return int(number) * _UNITS[unit]
