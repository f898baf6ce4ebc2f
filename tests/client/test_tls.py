"""TLS and mutual TLS, with certificates made for the test."""

from __future__ import annotations

import re
from pathlib import Path

import grpc
import grpc.aio
import pytest

from gradwire.client import AsyncClient, TLSConfig, UnavailableError
from gradwire.client.config import RetryConfig
from tests.certificate import Certificate, make_certificate
from tests.client.fake import Fake
from tests.client.services import SERVICES


async def serve(certificate: Certificate, mutual: bool) -> tuple[Fake, grpc.aio.Server, int]:
    """A fake behind TLS."""
    fake, server = Fake(), grpc.aio.server()
    for add, servicer in SERVICES:
        add(servicer(fake), server)
    chain = certificate.chain.read_bytes()
    credentials = grpc.ssl_server_credentials(
        [(certificate.key.read_bytes(), chain)], chain if mutual else None, require_client_auth=mutual
    )
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    return fake, server, port


async def test_tls_with_own_roots_carries_the_token(certificate: Certificate) -> None:
    fake, server, port = await serve(certificate, mutual=False)
    tls = TLSConfig(root_certificates=certificate.chain)
    async with AsyncClient(f"grpcs://localhost:{port}", token="s3cret", tls=tls) as client:
        assert (await client.sampling.generate("hi")).text == "hello"
    assert fake.metadata["Generate"][0]["authorization"] == "Bearer s3cret"
    await server.stop(0)


async def test_an_unknown_certificate_is_refused(certificate: Certificate) -> None:
    _, server, port = await serve(certificate, mutual=False)
    async with AsyncClient(f"grpcs://localhost:{port}", retry=RetryConfig(max_attempts=1)) as client:
        with pytest.raises(UnavailableError, match=rf"localhost:{port} is not trusted.*root_certificates=.*--ca"):
            await client.sampling.generate("hi")
    await server.stop(0)


@pytest.mark.parametrize("attempts", [1, 2, 3])  # "localhost" is ::1, too, where nobody listens
async def test_a_plain_call_where_tls_is_spoken_hints_at_it(certificate: Certificate, attempts: int) -> None:
    _, server, port = await serve(certificate, mutual=False)
    retry = RetryConfig(max_attempts=attempts, initial_backoff_s=0.01)
    async with AsyncClient(f"localhost:{port}", retry=retry) as client:
        with pytest.raises(UnavailableError, match=rf"localhost:{port} closed.*grpcs://"):
            await client.sampling.generate("hi")
    await server.stop(0)


@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_certificate_for_another_name_is_told(certificate: Certificate, attempts: int) -> None:
    _, server, port = await serve(certificate, mutual=False)
    tls = TLSConfig(root_certificates=certificate.chain, server_name="gpu.example.com")
    retry = RetryConfig(max_attempts=attempts, initial_backoff_s=0.01)
    async with AsyncClient(f"grpcs://localhost:{port}", tls=tls, retry=retry) as client:
        with pytest.raises(UnavailableError, match=r"is not for this name .*TLSConfig\(server_name="):
            await client.sampling.generate("hi")
    await server.stop(0)


@pytest.mark.parametrize("shown", [False, True])
async def test_a_missing_or_foreign_client_certificate_is_hinted_at(
    certificate: Certificate, tmp_path: Path, shown: bool
) -> None:
    _, server, port = await serve(certificate, mutual=True)
    foreign = make_certificate(tmp_path)
    chain, key = (foreign.chain, foreign.key) if shown else (None, None)
    tls = TLSConfig(root_certificates=certificate.chain, client_certificate=chain, client_key=key)
    async with AsyncClient(f"grpcs://localhost:{port}", tls=tls, retry=RetryConfig(max_attempts=1)) as client:
        with pytest.raises(UnavailableError, match="may want a client certificate") as caught:
            await client.sampling.generate("hi")
    assert "begins with" not in str(caught.value)
    await server.stop(0)


async def test_a_key_of_another_certificate_is_told(certificate: Certificate, tmp_path: Path) -> None:
    _, server, port = await serve(certificate, mutual=True)
    key = make_certificate(tmp_path).key
    tls = TLSConfig(client_certificate=certificate.chain, client_key=key)
    async with AsyncClient(f"grpcs://127.0.0.1:{port}", tls=tls, retry=RetryConfig(max_attempts=1)) as client:
        with pytest.raises(UnavailableError, match="client_key is not the key of client_certificate"):
            await client.sampling.generate("hi")
    await server.stop(0)


@pytest.mark.parametrize(
    ("key", "value"), [("x-user", "hidden 1\t"), ("x-user", "hidden\n"), ("x-user", "hiddené"), ("x user", "hidden"),
                       ("", "hidden"), ("grpc-x", "hidden"), ("x-user", b"hidden\x00")],
)  # fmt: skip
def test_metadata_that_cannot_be_sent_is_told_by_its_key(key: str, value: str | bytes) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(key))) as caught:
        AsyncClient("localhost:1", metadata={key: value})  # type: ignore[dict-item]  # bytes are taken, too
    assert "hidden" not in str(caught.value)
    AsyncClient("localhost:1", metadata={"X-User": "a b~", "x-bin": b"\x00"})  # type: ignore[dict-item]


async def test_mutual_tls(certificate: Certificate) -> None:
    _, server, port = await serve(certificate, mutual=True)
    tls = TLSConfig(
        root_certificates=certificate.chain.read_bytes(),
        client_certificate=certificate.chain,
        client_key=str(certificate.key),
    )
    async with AsyncClient(f"127.0.0.1:{port}", tls=tls) as client:
        assert (await client.sampling.generate("hi")).text == "hello"
    await server.stop(0)
