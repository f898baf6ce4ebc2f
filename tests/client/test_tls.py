"""TLS and mutual TLS, with certificates made for the test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import grpc
import grpc.aio
import pytest

from gradwire.client import AsyncClient, TLSConfig, UnavailableError
from gradwire.client.config import RetryConfig
from tests.client.fake import SERVICES, Fake

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


class Pair(NamedTuple):
    """A self-signed certificate and its key."""

    certificate: Path
    key: Path


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A certificate of `localhost`, which also signs for the client."""
    folder = tmp_path_factory.mktemp("tls")
    pair = Pair(folder / "cert.pem", folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", pair.key, "-out", pair.certificate], check=True, capture_output=True)
    return pair


async def serve(pair: Pair, mutual: bool) -> tuple[Fake, grpc.aio.Server, int]:
    """A fake behind TLS."""
    fake, server = Fake(), grpc.aio.server()
    for add, servicer in SERVICES:
        add(servicer(fake), server)
    certificate = pair.certificate.read_bytes()
    credentials = grpc.ssl_server_credentials(
        [(pair.key.read_bytes(), certificate)], certificate if mutual else None, require_client_auth=mutual
    )
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    return fake, server, port


async def test_tls_with_own_roots_carries_the_token(pair: Pair) -> None:
    fake, server, port = await serve(pair, mutual=False)
    tls = TLSConfig(root_certificates=pair.certificate)
    async with AsyncClient(f"grpcs://localhost:{port}", token="s3cret", tls=tls) as client:
        assert (await client.sampling.generate("hi")).text == "hello"
    assert fake.metadata["Generate"][0]["authorization"] == "Bearer s3cret"
    await server.stop(0)


async def test_an_unknown_certificate_is_refused(pair: Pair) -> None:
    _, server, port = await serve(pair, mutual=False)
    async with AsyncClient(f"grpcs://localhost:{port}", retry=RetryConfig(max_attempts=1)) as client:
        with pytest.raises(UnavailableError, match=f"localhost:{port}"):
            await client.sampling.generate("hi")
    await server.stop(0)


async def test_mutual_tls(pair: Pair) -> None:
    _, server, port = await serve(pair, mutual=True)
    tls = TLSConfig(
        root_certificates=pair.certificate.read_bytes(), client_certificate=pair.certificate, client_key=str(pair.key)
    )
    async with AsyncClient(f"127.0.0.1:{port}", tls=tls) as client:
        assert (await client.sampling.generate("hi")).text == "hello"
    await server.stop(0)
