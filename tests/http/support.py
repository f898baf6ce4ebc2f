"""Calls of a server's HTTP door by hand, to see what is on the wire."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from google.rpc import error_details_pb2

from tests.rpc.support import Served, serving

GENERATE = "/gradwire.v1.SamplingService/Generate"
STREAM = "/gradwire.v1.SamplingService/GenerateStream"
UPLOAD = "/gradwire.v1.TrainingService/UploadBatch"
PROTO, JSON = "application/proto", "application/json"
CONNECT_PROTO, CONNECT_JSON = "application/connect+proto", "application/connect+json"
PREFIX = struct.Struct(">BI")


@asynccontextmanager
async def serving_http(folder: Path, **settings: Any) -> AsyncIterator[Served]:
    """A server on fake engines with its HTTP door."""
    async with serving(folder, http="127.0.0.1:0", **settings) as served:
        yield served


def envelope(data: bytes, flags: int = 0) -> bytes:
    return PREFIX.pack(flags, len(data)) + data


@dataclass
class Answer:
    """Of one request: what stood in it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def envelopes(self) -> list[tuple[int, bytes]]:
        """Flags and bytes of each."""
        found, rest = [], self.body
        while rest:
            flags, size = PREFIX.unpack_from(rest)
            assert len(rest) >= PREFIX.size + size, "the answer breaks off"
            found.append((flags, rest[PREFIX.size : PREFIX.size + size]))
            rest = rest[PREFIX.size + size :]
        return found

    @property
    def messages(self) -> list[bytes]:
        """Of a stream that ended well."""
        *messages, (flags, end) = self.envelopes
        assert (flags, json.loads(end)) == (2, {})
        return [data for _, data in messages]

    @property
    def error(self) -> dict[str, Any]:
        """The error object, wherever it stands."""
        if self.headers["content-type"].startswith("application/connect+"):
            flags, end = self.envelopes[-1]
            assert flags == 2 and self.status == 200
            return dict(json.loads(end)["error"])
        assert self.headers["content-type"] == JSON and self.status >= 400
        return dict(self.json)

    @property
    def reason(self) -> str:
        """ErrorInfo's, out of its bytes."""
        return str(detail(self.error, error_details_pb2.ErrorInfo()).reason)


def detail(error: dict[str, Any], message: Any) -> Any:
    """A detail of an error, out of its base64."""
    (found,) = [d for d in error["details"] if d["type"] == message.DESCRIPTOR.full_name]
    message.ParseFromString(base64.b64decode(found["value"] + "=" * (-len(found["value"]) % 4)))
    return message


async def post(
    served: Served, path: str, body: Any = b"", content_type: str = PROTO, headers: dict[str, str] | None = None,
    method: str = "POST",
) -> Answer:  # fmt: skip
    """One request on a connection of its own."""
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.request(
            method,
            f"http://{served.app.http_address}{path}",
            data=body,
            headers={"content-type": content_type, **(headers or {})},
        ) as response,
    ):
        found = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status, found, await response.read())
