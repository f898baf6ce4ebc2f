"""What tells that a request is one that came before: its client's name for it, or its client's count of retries."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_RETRY_COUNT = "x-stainless-retry-count"  # of the clients that are made for OpenAI's own API: on each attempt, from 0


@dataclass(frozen=True, slots=True)
class Request:
    """A request that may come again.

    `keyed` is one whose client gave it a key of its own; `retries` is how often its client says it was sent before,
    None when such a count says nothing; `twin` is equal for requests of one caller that have the same answer.
    """

    content: str
    name: str = ""
    streamed: bool = False
    keyed: bool = False
    retries: int | None = None
    twin: str = ""


def retries_of(headers: Mapping[str, str]) -> int | None:
    """How often a client says that it sent this before. None when it does not, or says no such number.

    The header is no part of the API that is asked, and not the caller's to mend: what is no number is not refused.
    """
    count = headers.get(_RETRY_COUNT, "")
    return int(count) if re.fullmatch("[0-9]{1,4}", count) else None


def request_of(
    headers: Mapping[str, str], request_id: str, endpoint: str, body: Mapping[str, Any], origin: Sequence[object]
) -> Request | None:
    """None for a request that will not come again, as far as it says.

    It is named by Idempotency-Key, else by the request id that the client gave. Without a key its retries are counted
    as well: proxies give each attempt an id of its own. `origin` is what must be equal beside the body.
    """
    content = _digest([endpoint, body])
    streamed = bool(body.get("stream"))
    key = headers.get("idempotency-key", "")[:256]
    if key:
        return Request(content, f"key:{key}", streamed=streamed, keyed=True)
    named = headers.get("x-request-id") == request_id
    retries = retries_of(headers)
    if not named and retries is None:
        return None
    name = f"id:{request_id}:{content}" if named else ""
    return Request(content, name, streamed=streamed, retries=retries, twin=_digest([content, *map(str, origin)]))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
