"""Compression of a request's body: gzip, or none."""

from __future__ import annotations

import asyncio
import zlib

from gradwire.server.errors import InvalidArgument, Unimplemented
from gradwire.server.http.refusals import too_large


def check_encoding(name: str) -> bool:
    """Whether bytes are gzipped; raises Unimplemented for any other compression."""
    if name in ("", "identity"):
        return False
    if name == "gzip":
        return True
    raise Unimplemented("UNKNOWN_COMPRESSION", f"compression {name!r} is not known here; send identity or gzip")


async def inflate(data: bytes, limit: int) -> bytes:
    """gzip undone, never to more than `limit` bytes."""
    return await asyncio.to_thread(_inflate, data, limit)


def _inflate(data: bytes, limit: int) -> bytes:
    machine = zlib.decompressobj(wbits=31)
    try:
        plain = machine.decompress(data, limit + 1)
    except zlib.error as error:
        raise InvalidArgument.at("", f"the body is no gzip: {error}", reason="NOT_GZIP") from None
    if len(plain) > limit:
        raise too_large(None, limit)
    if not machine.eof:
        raise InvalidArgument.at("", "the gzipped body breaks off", reason="NOT_GZIP")
    if machine.unused_data:
        raise InvalidArgument.at("", "the gzipped body goes on behind its end; send one gzip stream", reason="NOT_GZIP")
    return plain
