"""The transport over HTTP: what is its own. All else is tested over both transports, by the fixture."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from gradwire.client import (
    AsyncClient,
    DeadlineExceededError,
    GradwireError,
    InternalError,
    ResourceExhaustedError,
    TLSConfig,
    UnavailableError,
    UnimplementedError,
    UnknownError,
)
from gradwire.client.config import RetryConfig
from gradwire.server.config import TlsSettings
from gradwire.server.http.connect.door import ConnectDoor
from gradwire.server.http.connect.methods import MethodTable
from gradwire.server.http.server import HttpServer
from gradwire.server.rpc.interceptors.step import Chain
from tests.certificate import Certificate
from tests.client.fake import Fake
from tests.client.services import SERVICES
from tests.client.test_streams import two_deltas

ONCE = RetryConfig(max_attempts=1)
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """A server that says the same to everybody and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


def http(status: str, body: bytes, kind: str = "text/html", extra: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{extra}content-length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (http("502 Bad Gateway", b"<h1>upstream is down</h1>"), UnavailableError),
        (http("404 Not Found", b"nginx"), UnimplementedError),
        (http("302 Found", b"", extra="location: http://127.0.0.1:1/\r\n"), GradwireError),
        (http("500 Oops", b'{"code": 3}', "application/json"), GradwireError),
        (http("200 OK", b"log in first"), UnknownError),
        (b"SSH-2.0-OpenSSH_9.2\r\n", UnavailableError),
        (b"", UnavailableError),
    ],
)
async def test_answers_that_no_gradwire_server_made(answer: bytes, error: type[GradwireError]) -> None:
    async with answering(answer) as address, AsyncClient(address, retry=ONCE, timeout=10) as client:
        with pytest.raises(error):
            await client.sampling.generate("hi")
        with pytest.raises(error):
            await client.sampling.generate_stream("hi").result()


STREAM = "HTTP/1.1 200 OK\r\ncontent-type: application/connect+proto\r\nconnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", UnavailableError),
        (b"\0\0\0\0\x05ab", UnavailableError),
        (b"\x07\0\0\0\0", InternalError),
        (b"\0\xff\xff\xff\xff", ResourceExhaustedError),
        (b"\x02\0\0\0\x02no", InternalError),
    ],
)
async def test_streams_that_break_off(body: bytes, error: type[GradwireError]) -> None:
    async with answering(STREAM.encode() + body) as address, AsyncClient(address, retry=ONCE, timeout=10) as client:
        with pytest.raises(error):
            await client.sampling.generate_stream("hi").result()


async def test_an_answer_that_breaks_off() -> None:
    short = b"HTTP/1.1 200 OK\r\ncontent-type: application/proto\r\ncontent-length: 100\r\n\r\nshort"
    async with answering(short) as address, AsyncClient(address, retry=ONCE, timeout=10) as client:
        with pytest.raises(UnavailableError):
            await client.sampling.generate("hi")


async def test_nobody_there() -> None:
    async with AsyncClient("http://127.0.0.1:1", retry=ONCE) as client:
        with pytest.raises(UnavailableError, match="no gradwire server answers at http://"):
            await client.sampling.generate("hi")


async def test_an_answer_over_the_limit() -> None:
    fake = await Fake(http=True).start()
    async with AsyncClient(fake.address, retry=ONCE, max_message_bytes=50) as client:
        with pytest.raises(ResourceExhaustedError, match="this client takes 50 at most"):
            await client.sampling.generate("hi")
        fake.deltas = two_deltas()
        with pytest.raises(ResourceExhaustedError, match="an answer has"):
            await client.sampling.generate_stream("hi").result()
    await fake.stop()


async def test_what_the_server_does_not_take_says_what_would_help(fake: Fake) -> None:
    await fake.stop()
    fake.max_message_bytes = 1000
    await fake.start(fake.address)
    async with AsyncClient(fake.address, retry=ONCE) as client:
        with pytest.raises(ResourceExhaustedError, match="1000") as caught:
            await client.sampling.generate("x" * 2000)
    assert caught.value.reason == "MESSAGE_TOO_LARGE"


async def test_deadline_of_a_stream() -> None:
    fake = await Fake(http=True).start()
    fake.stall = True
    async with AsyncClient(fake.address) as client:
        with pytest.raises(DeadlineExceededError):
            await client.sampling.generate_stream("hi", timeout=1.0).result()
    await fake.stop()
    assert fake.cancelled["GenerateStream"] == 1


# TLS


async def serve(certificate: Certificate, mutual: bool) -> tuple[Fake, HttpServer, str]:
    """A fake behind HTTPS."""
    fake, methods = Fake(), MethodTable()
    for add, servicer in SERVICES:
        add(servicer(fake), methods)
    door = ConnectDoor(methods, Chain([]), max_message_bytes=1 << 20, patience_s=60.0, guarded=True)
    tls = TlsSettings(
        certificate=certificate.chain, key=certificate.key, client_ca=certificate.chain if mutual else None
    )
    server = HttpServer(door, [], tls)
    port = (await server.start("127.0.0.1:0")).rpartition(":")[2]
    return fake, server, f"https://localhost:{port}"


async def test_tls_with_own_roots_carries_the_token(certificate: Certificate) -> None:
    fake, server, address = await serve(certificate, mutual=False)
    async with AsyncClient(address, token="s3cret", tls=TLSConfig(root_certificates=certificate.chain)) as client:
        assert (await client.sampling.generate("hi")).text == "hello"
    assert fake.metadata["Generate"][0]["authorization"] == "Bearer s3cret"
    by_number = address.replace("localhost", "127.0.0.1")
    named = TLSConfig(root_certificates=certificate.chain.read_bytes(), server_name="localhost")
    async with AsyncClient(by_number, tls=named) as client:
        assert (await client.sampling.generate("hi")).text == "hello"
    async with AsyncClient(address, retry=ONCE) as client:
        with pytest.raises(UnavailableError, match="certificate"):
            await client.sampling.generate("hi")
    await server.stop()


async def test_mutual_tls(certificate: Certificate) -> None:
    _, server, address = await serve(certificate, mutual=True)
    roots = certificate.chain
    tls = TLSConfig(root_certificates=roots, client_certificate=certificate.chain, client_key=str(certificate.key))
    async with AsyncClient(address, tls=tls) as client:
        assert (await client.sampling.generate("hi")).text == "hello"
    async with AsyncClient(address, tls=TLSConfig(root_certificates=roots), retry=ONCE) as client:
        with pytest.raises(UnavailableError):
            await client.sampling.generate("hi")
    await server.stop()


def test_contradictions_name_the_right_form() -> None:
    with pytest.raises(ValueError, match="write https://localhost:1"):
        AsyncClient("http://localhost:1", tls=True)
    with pytest.raises(ValueError, match="write http://localhost:1,"):
        AsyncClient("https://localhost:1", tls=False)
    with pytest.raises(ValueError, match=r"Connect with https://10\.0\.0\.5:1"):
        AsyncClient("http://10.0.0.5:1", token="s3cret")


def test_aiohttp_is_loaded_by_those_who_use_it() -> None:
    program = "import sys, gradwire.client as g; g.AsyncClient(); print('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"
    program = """
import sys
sys.modules["aiohttp"] = None
import importlib.util
importlib.util.find_spec = lambda name: None
import gradwire.client
gradwire.client.AsyncClient("http://localhost:1")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install -e '.[http]'" in done.stderr
