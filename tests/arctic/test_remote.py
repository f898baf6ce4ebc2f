"""A server elsewhere: TLS, a token, and what reconnecting carries of them. The server is real and has no jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from gradwire.client import NotFoundError, UnauthenticatedError
from gradwire.client.arctic import ArcticRLClientConfig, create_arctic_rl_client
from gradwire.client.arctic.attach import attach
from tests.certificate import Certificate
from tests.serving import ServerProcess

SECRET = "an-unguessable-secret"


@pytest.fixture(scope="module")
def remote(certificate: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """`gradwire serve` with TLS and one token, on both doors."""
    folder = tmp_path_factory.mktemp("remote")
    settings = folder / "gradwire.toml"
    settings.write_text(
        f'[tls]\ncertificate = "{certificate.chain}"\nkey = "{certificate.key}"\n'
        f'[[tokens]]\nname = "trainer"\nsha256 = "{hashlib.sha256(SECRET.encode()).hexdigest()}"\n'
    )
    flags = ("--config", str(settings), "--http", "127.0.0.1:0", "--data-dir", str(folder / "data"))
    with ServerProcess(*flags, auth=True) as running:
        yield running


def config(remote: ServerProcess, certificate: Certificate, protocol: str, **fields: Any) -> ArcticRLClientConfig:
    port = int(remote.doors[protocol].rpartition(":")[2])
    given = {"backend": "remote", "comm_protocol": protocol, "host": "localhost", "port": port, "model_name": "tiny"}
    return ArcticRLClientConfig(**{**given, "training_job_id": 7, "tls_ca": str(certificate.chain), **fields})


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_token_over_tls(
    remote: ServerProcess, certificate: Certificate, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRADWIRE_TOKEN", raising=False)
    # The job is not there, which only a caller who is let in is told.
    with pytest.raises(NotFoundError, match="7"):
        create_arctic_rl_client(config(remote, certificate, protocol, token=SECRET))
    with pytest.raises(UnauthenticatedError) as refused:
        create_arctic_rl_client(config(remote, certificate, protocol, token="another-secret"))
    assert "another-secret" not in str(refused.value)
    with pytest.raises(UnauthenticatedError):
        create_arctic_rl_client(config(remote, certificate, protocol))
    monkeypatch.setenv("GRADWIRE_TOKEN", SECRET)
    with pytest.raises(NotFoundError):
        create_arctic_rl_client(config(remote, certificate, protocol))


def test_reconnecting_carries_the_certificate_itself(remote: ServerProcess, certificate: Certificate) -> None:
    made = config(remote, certificate, "grpc", token=SECRET)
    fields = attach(made, None).reconnect(made)
    assert fields["tls"] is True and fields["tls_ca"] == certificate.chain.read_text()
    assert (fields["host"], fields["port"]) == ("localhost", made.port)


def test_a_token_never_travels_in_the_clear() -> None:
    fields: dict[str, Any] = {"backend": "remote", "host": "example.org", "training_job_id": 1, "token": SECRET}
    plain = ArcticRLClientConfig(model_name="tiny", **fields)
    with pytest.raises(ValueError, match="in the clear") as refused:
        create_arctic_rl_client(plain)
    assert SECRET not in str(refused.value)
