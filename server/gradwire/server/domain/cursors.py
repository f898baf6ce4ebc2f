"""Cursors of listings: where the page before ended, as text that callers hand back.

A cursor is a place in the order (a time, then a tie-breaker), not a row: it stays right when rows come or go.
It holds nothing secret, and says nothing about whose rows follow: the listing's own filter does.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass

from gradwire.server.errors import InvalidArgument

_MAX_TIME = 1 << 62


@dataclass(frozen=True, slots=True)
class Cursor:
    """After the entry of this time (Unix microseconds) and, among those of one time, this tie-breaker."""

    time: int
    tie: int | str


def encode_cursor(cursor: Cursor | None) -> str:
    """Text for `next_page_token`; empty without one."""
    if cursor is None:
        return ""
    return base64.urlsafe_b64encode(json.dumps([cursor.time, cursor.tie]).encode()).decode().rstrip("=")


def decode_cursor(token: str, tie: type[int] | type[str]) -> Cursor | None:
    """The cursor of a `page_token`; None of an empty one. Raises InvalidArgument."""
    if not token:
        return None
    try:
        padded = token + "=" * (-len(token) % 4)
        match json.loads(base64.b64decode(padded, altchars=b"-_", validate=True)):
            case [int(time), int() | str() as last] if (
                type(time) is int and type(last) is tie and 0 <= time < _MAX_TIME
            ):
                if isinstance(last, str) or 0 <= last < _MAX_TIME:
                    return Cursor(time, last)
    except (binascii.Error, ValueError, RecursionError):
        pass
    raise InvalidArgument.at("page_token", "is not from a page of this listing; begin again without one")
