"""Server and client decide by the same versions of grpcio which poller to take."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError

import pytest

from gradwire.client._core import polling as of_client
from gradwire.server import polling as of_server


@pytest.mark.parametrize(
    ("said", "both"),
    [
        ("1.79.3", False), ("1.80", True), ("1.85.3", True), ("1.85rc1", True), ("1.85.0.dev0", True),
        ("1.86.dev0", False), ("2", False), ("", False), (None, False),
    ],
)  # fmt: skip
def test_a_version_of_grpc_may_look_like_anything(
    said: str | None, both: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str | None:
        if said is None:
            raise PackageNotFoundError(name)
        return said

    monkeypatch.setattr(of_client, "version", version)
    monkeypatch.setattr(of_server, "version", version)
    monkeypatch.delenv("GRPC_EXPERIMENTS", raising=False)
    of_server.choose_poller()
    assert (os.environ.pop("GRPC_EXPERIMENTS", None) == of_client._OLDER_POLLER) is both
    assert of_client._has_both() is both


def test_the_environment_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPC_EXPERIMENTS", "of-the-user")
    of_server.choose_poller()
    assert os.environ["GRPC_EXPERIMENTS"] == "of-the-user"
