"""Fixtures that all tests share: one real server with real engines for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serving import ServerProcess


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """`gradwire serve --model tiny`, started once. Tests leave it as they found it."""
    running = ServerProcess(
        "--model", "tiny", "--http", "127.0.0.1:0", "--data-dir", str(tmp_path_factory.mktemp("data"))
    )
    yield running
    assert running.stop() == 0
