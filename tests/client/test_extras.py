"""Without a package that an extra brings, what takes it says what to install."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from gradwire.client import Client
from gradwire.client._core.extras import extra
from gradwire.client.agentic.memory.summary_client import SummaryClient
from gradwire.client.agentic.memory.tokens import HuggingFaceTokenCounter
from gradwire.client.arctic import ray_server


@pytest.mark.parametrize(
    ("package", "name", "use"),
    [
        ("aiohttp", "http", lambda: Client("http://127.0.0.1:1")),
        ("openai", "agentic", lambda: SummaryClient("no client", "model")),
        ("transformers", "agentic", lambda: HuggingFaceTokenCounter("/nowhere")),
        ("ray", "ray", lambda: ray_server._ray()),
    ],
)
def test_a_missing_package_is_told_with_its_extra(
    package: str, name: str, use: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"takes {package}, which is not installed: .* -e '\.\[{name}\]'"):
        use()


def test_a_missing_module_of_ours_is_a_bug() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'gradwire\.client\.nothing'$"), extra("x", "y"):
        __import__("gradwire.client.nothing")
