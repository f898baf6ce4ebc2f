"""Envelopes: how a stream's messages stand in one body, each behind its flags and its length."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator

from gradwire.server.errors import InvalidArgument
from gradwire.server.http.body import Body
from gradwire.server.http.compression import inflate
from gradwire.server.http.refusals import too_large

END_OF_STREAM = 0x02
_COMPRESSED = 0x01
_PREFIX = struct.Struct(">BI")  # flags and length


def envelope(data: bytes, flags: int = 0) -> bytes:
    """Bytes with their flags and length in front."""
    return _PREFIX.pack(flags, len(data)) + data


async def messages(body: Body) -> AsyncIterator[bytes]:
    """Each envelope's message."""
    while prefix := await body.take(_PREFIX.size):
        if len(prefix) < _PREFIX.size:
            raise _truncated()
        flags, size = _PREFIX.unpack(prefix)
        if size > body.limit:
            raise too_large(size, body.limit)
        _check(flags, gzipped=body.gzipped)
        data = await body.take(size)
        if len(data) < size:
            raise _truncated()
        yield await inflate(data, body.limit) if flags & _COMPRESSED else data


def _check(flags: int, *, gzipped: bool) -> None:
    if flags & ~(_COMPRESSED | END_OF_STREAM) or (flags & _COMPRESSED and not gzipped):
        text = f"an envelope has flags {flags:#x}; 0 is a message, and 1 a gzipped one after Connect-Content-Encoding"
        raise InvalidArgument.at("", text, reason="BAD_ENVELOPE")
    if flags & END_OF_STREAM:
        text = "a request has no end-of-stream envelope; it ends with its body"
        raise InvalidArgument.at("", text, reason="BAD_ENVELOPE")


def _truncated() -> InvalidArgument:
    return InvalidArgument.at("", "the body ends in the middle of an envelope", reason="TRUNCATED_ENVELOPE")
