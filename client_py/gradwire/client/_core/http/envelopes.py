"""Connect's envelopes: flags, length, bytes."""

from __future__ import annotations

import struct

import grpc.aio

from gradwire.client._core.http.failures import failed, too_large

END_OF_STREAM = 0x02
_PREFIX = struct.Struct(">BI")


def envelope(data: bytes) -> bytes:
    """A message with its prefix."""
    return _PREFIX.pack(0, len(data)) + data


class Envelopes:
    """Takes bytes as they come and gives whole envelopes, none larger than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Take more bytes."""
        self._buffer += data

    def next(self) -> tuple[int, bytes] | None:
        """Flags and bytes of the next envelope; None until it is whole. Raises AioRpcError for what is none."""
        if len(self._buffer) < _PREFIX.size:
            return None
        flags, size = _PREFIX.unpack_from(self._buffer)
        if flags not in (0, END_OF_STREAM):
            raise failed(grpc.StatusCode.INTERNAL, f"an envelope has flags {flags:#x}, which were not asked for")
        if size > self._limit:
            raise too_large(size, self._limit, sent=False)
        end = _PREFIX.size + size
        if len(self._buffer) < end:
            return None
        data = bytes(memoryview(self._buffer)[_PREFIX.size : end])
        del self._buffer[:end]
        return flags, data
