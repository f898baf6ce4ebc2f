"""A server without an engine, or without PostgreSQL's driver, says what to install."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradwire.server.cli import main
from gradwire.server.engines.factory import RealEngines
from gradwire.server.engines.policy import load_policy
from gradwire.server.errors import FailedPrecondition
from gradwire.server.storage.database import Database, database_url

URL = "postgresql://nobody@127.0.0.1:1/nothing"
ANY: Any = None


async def sampler() -> None:
    RealEngines().sampler(ANY)


async def trainer() -> None:
    RealEngines().trainer(ANY)


@pytest.mark.parametrize(
    ("package", "use", "reason", "command"),
    [
        ("vllm", sampler, "ENGINE_NOT_INSTALLED", "make setup"),
        ("deepspeed", trainer, "ENGINE_NOT_INSTALLED", "make setup"),
        ("onnxruntime", lambda: load_policy(Path("nowhere")), "POLICIES_NOT_INSTALLED", "'.[policy]'"),
        ("asyncpg", Database(database_url(URL, Path())).open, "POSTGRES_NOT_INSTALLED", "'.[postgres]'"),
    ],
)
async def test_a_missing_package_is_told_with_what_installs_it(
    package: str, use: Callable[[], Any], reason: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(FailedPrecondition) as caught:
        await use()
    assert caught.value.reason == reason
    assert f"without {package}:" in caught.value.message and command in caught.value.message


def test_only_tokens_in_a_database_take_the_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    for name in ("cli.token", "cli.offline_tokens", "storage.database"):
        monkeypatch.delitem(sys.modules, f"gradwire.server.{name}", raising=False)
    assert main(["token", "list", "--database", "sqlite:///nowhere.db"]) == 1
    assert "needs the package sqlalchemy" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    assert main(["token", "list", "--server", "http://127.0.0.1:1"]) == 1
    assert "http://127.0.0.1:1 takes aiohttp, which is not installed" in capsys.readouterr().err
