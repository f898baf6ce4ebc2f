"""A server elsewhere: TLS, a token, and what reconnecting carries of them. The server is real and has no jobs."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradwire.client import NotFoundError, UnauthenticatedError
from gradwire.client.arctic import ArcticRLClientConfig, create_arctic_rl_client
from gradwire.client.arctic.attach import attach
from tests.serving import ServerProcess

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
SECRET = "an-unguessable-secret"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a self-signed certificate of localhost and its key."""
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    names = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*command, *names], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def remote(authority: Path) -> Iterator[ServerProcess]:
    """`gradwire serve` with TLS and one token, on both doors."""
    settings = authority / "gradwire.toml"
    settings.write_text(
        f'[tls]\ncertificate = "{authority}/cert.pem"\nkey = "{authority}/key.pem"\n'
        f'[[tokens]]\nname = "trainer"\nsha256 = "{hashlib.sha256(SECRET.encode()).hexdigest()}"\n'
    )
    flags = ("--config", str(settings), "--http", "127.0.0.1:0", "--data-dir", str(authority / "data"))
    with ServerProcess(*flags, auth=True) as running:
        yield running


def config(remote: ServerProcess, authority: Path, protocol: str, **fields: Any) -> ArcticRLClientConfig:
    port = int(remote.doors[protocol].rpartition(":")[2])
    given = {"backend": "remote", "comm_protocol": protocol, "host": "localhost", "port": port, "model_name": "tiny"}
    return ArcticRLClientConfig(**{**given, "training_job_id": 7, "tls_ca": str(authority / "cert.pem"), **fields})


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_token_over_tls(
    remote: ServerProcess, authority: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRADWIRE_TOKEN", raising=False)
    # The job is not there, which only a caller who is let in is told.
    with pytest.raises(NotFoundError, match="7"):
        create_arctic_rl_client(config(remote, authority, protocol, token=SECRET))
    with pytest.raises(UnauthenticatedError) as refused:
        create_arctic_rl_client(config(remote, authority, protocol, token="another-secret"))
    assert "another-secret" not in str(refused.value)
    with pytest.raises(UnauthenticatedError):
        create_arctic_rl_client(config(remote, authority, protocol))
    monkeypatch.setenv("GRADWIRE_TOKEN", SECRET)
    with pytest.raises(NotFoundError):
        create_arctic_rl_client(config(remote, authority, protocol))


def test_reconnecting_carries_the_certificate_itself(remote: ServerProcess, authority: Path) -> None:
    made = config(remote, authority, "grpc", token=SECRET)
    fields = attach(made, None).reconnect(made)
    assert fields["tls"] is True and fields["tls_ca"] == (authority / "cert.pem").read_text()
    assert (fields["host"], fields["port"]) == ("localhost", made.port)


def test_a_token_never_travels_in_the_clear() -> None:
    fields: dict[str, Any] = {"backend": "remote", "host": "example.org", "training_job_id": 1, "token": SECRET}
    plain = ArcticRLClientConfig(model_name="tiny", **fields)
    with pytest.raises(ValueError, match="in the clear") as refused:
        create_arctic_rl_client(plain)
    assert SECRET not in str(refused.value)
