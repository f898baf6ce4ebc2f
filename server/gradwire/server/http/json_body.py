"""A request's body as JSON: one object, of finite numbers and whole characters. Large ones are read in a thread."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

from gradwire.server.errors import InvalidArgument

T = TypeVar("T")
_LONG_BYTES = 256 << 10
"""Reading or writing more than this would hold up the event loop."""


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """`work` on about `size` bytes: in a thread when that is more than the loop should wait for."""
    return await asyncio.to_thread(work) if size > _LONG_BYTES else work()


def json_object(data: bytes) -> dict[str, Any]:
    """The body; raises InvalidArgument. Its characters may still be halves: see `check_escapes`."""
    try:
        text = data.decode()  # json.loads would guess encodings, and take halves of characters
        body = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument.at("", f"the body is no JSON: {error}", reason="NOT_JSON") from error
    if not isinstance(body, dict):
        raise InvalidArgument.at("", f"the body is a JSON {type(body).__name__}; it must be an object")
    return body


def check_escapes(data: bytes, body: Any) -> None:
    """Raises InvalidArgument when an escape anywhere in the body is half a character."""
    if b"\\u" in data:
        check_characters(json.dumps(body, ensure_ascii=False), "")


def check_characters(text: str, path: str) -> None:
    """An escape may be half a character: it breaks tokenizers, logs and the answer itself."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        raise InvalidArgument.at(path, f"holds half a character: \\u{half:04x} stands without its pair") from None


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large for a number")
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")
