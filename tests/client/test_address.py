"""Where clients connect, and that a token never travels in the clear."""

from __future__ import annotations

import pytest

from gradwire.client import AsyncClient, Client, TLSConfig
from gradwire.client._core.address import parse_address, reachable
from tests.client.fake import Fake


@pytest.mark.parametrize(
    ("text", "target", "tls", "local"),
    [
        ("127.0.0.1:50051", "127.0.0.1:50051", False, True),
        ("127.8.9.1:1", "127.8.9.1:1", False, True),
        ("localhost", "localhost:50051", False, True),
        ("grpc://10.0.0.5:7", "10.0.0.5:7", False, False),
        ("grpcs://gpu.example.com:443/", "gpu.example.com:443", True, False),
        ("[::1]:9", "[::1]:9", False, True),
        ("::1", "[::1]:50051", False, True),
        ("http://10.0.0.5:8080", "http://10.0.0.5:8080", False, False),
        ("http://localhost/", "http://localhost:80", False, True),
        ("https://[::1]", "https://[::1]:443", True, True),
        ("unix:///run/gradwire.sock", "unix:/run/gradwire.sock", False, True),
        ("localhost.example.com:1", "localhost.example.com:1", False, False),
    ],
)
def test_forms_of_an_address(text: str, target: str, tls: bool, local: bool) -> None:
    address = parse_address(text)
    assert (address.target, address.tls, address.local) == (target, tls, local)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ftp://x:1", "ftp://"),
        ("http://x:1/path", "no usable|1 to 65535"),
        ("host:port", "1 to 65535"),
        ("host:70000", "1 to 65535"),
        (":50051", "no usable host"),
        ("user@host:1", "no usable host"),
        ("unix://", "names no socket"),
    ],
)
def test_bad_address_says_what_is_right(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_address(text)


def test_environment_gives_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    assert AsyncClient().address == "127.0.0.1:50051"
    monkeypatch.setenv("GRADWIRE_ADDRESS", "localhost:9")
    assert AsyncClient().address == "localhost:9"
    assert AsyncClient("localhost:8").address == "localhost:8"


def test_token_is_refused_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"in the clear.*grpcs://10\.0\.0\.5:50051") as caught:
        Client("10.0.0.5:50051", token="s3cret")
    assert "s3cret" not in str(caught.value)
    monkeypatch.setenv("GRADWIRE_TOKEN", "s3cret")
    with pytest.raises(ValueError, match="in the clear"):
        AsyncClient("grpc://gpu.example.com:1")
    AsyncClient("grpcs://gpu.example.com:1")
    AsyncClient("gpu.example.com:1", tls=True)
    AsyncClient("unix:///tmp/x.sock")


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "schlüssel"])
def test_token_that_cannot_be_one(token: str) -> None:
    with pytest.raises(ValueError, match="pass the secret alone"):
        AsyncClient("localhost:1", token=token)


def test_contradictions_are_refused() -> None:
    with pytest.raises(ValueError, match="contradicts"):
        AsyncClient("grpcs://h:1", tls=False)
    with pytest.raises(ValueError, match="belong together"):
        TLSConfig(client_key=b"k")
    with pytest.raises(ValueError, match="token="):
        AsyncClient("localhost:1", metadata={"Authorization": "Bearer x"})


def test_no_repr_shows_a_secret() -> None:
    client = AsyncClient("grpcs://h:1", token="s3cret", tls=TLSConfig(client_certificate=b"CERT", client_key=b"K3Y"))
    shown = f"{client} {client._connection._endpoint} {TLSConfig(client_certificate=b'CERT', client_key=b'K3Y')}"
    assert "s3cret" not in shown
    assert "K3Y" not in shown


async def test_token_metadata_and_user_agent_are_sent(fake: Fake) -> None:
    async with AsyncClient(fake.address, token="s3cret", metadata={"X-External-User-Id": "u7"}) as client:
        await client.sampling.generate("hi")
    sent = fake.metadata["Generate"][0]
    assert sent["authorization"] == "Bearer s3cret"
    assert sent["x-external-user-id"] == "u7"
    assert sent["user-agent"].startswith("gradwire-python/")


async def test_unix_socket(tmp_path: object) -> None:
    path = f"unix://{tmp_path}/gw.sock"
    fake = await Fake().start(path.replace("unix://", "unix:"))
    async with AsyncClient(path, token="allowed") as client:
        assert (await client.sampling.generate("hi")).text == "hello"
    await fake.stop()


@pytest.mark.parametrize(
    ("address", "url", "found"),
    [
        ("127.0.0.1:50051", "http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("gpu.example.com:443", "https://0.0.0.0:8443", "https://gpu.example.com:8443"),
        ("[::1]:9", "http://[::]:8080", "http://[::1]:8080"),
        ("grpcs://localhost:50071", "https://127.0.0.1:8071", "https://localhost:8071"),
        ("grpcs://gpu.example.com", "https://[::1]:8071", "https://gpu.example.com:8071"),
        ("[::1]:9", "http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("gpu.example.com:443", "https://10.0.0.5:8443", "https://10.0.0.5:8443"),
        ("http://10.0.0.5:80", "", ""),
        ("http://10.0.0.5:80", "http://127.0.0.1:8080", "http://10.0.0.5:80"),
        ("unix:///run/g.sock", "http://0.0.0.0:1", "http://0.0.0.0:1"),
    ],
)
def test_a_url_that_a_server_gives_of_itself_is_made_reachable(address: str, url: str, found: str) -> None:
    assert reachable(url, parse_address(address)) == found
