"""The contract from another language: the Node.js example, against the real server, and over TLS with a token."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.certificate import make_certificate
from tests.fake_engines import FakeEngines
from tests.rpc.support import serving
from tests.rpc.test_auth import SECRETS, token
from tests.serving import ServerProcess

EXAMPLE = Path(__file__).parents[1] / "examples" / "node"


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its folder, with what it needs."""
    if shutil.which("npm") is None:
        pytest.skip("Node.js is not installed")
    root = tmp_path_factory.mktemp("node")
    folder = root / "examples" / "node"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("node_modules"))
    (root / "protos").symlink_to(EXAMPLE.parents[1] / "protos")
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=folder, check=True, timeout=120)
    return folder


async def run(folder: Path, address: str, **environment: str) -> tuple[str, str]:
    """What it says, and its complaints."""
    process = await asyncio.create_subprocess_exec(
        *("node", "train.mjs", address),
        cwd=folder,
        env={**os.environ, "GRADWIRE_TOKEN": "", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, errors = await asyncio.wait_for(process.communicate(), 120)
    finally:
        if process.returncode is None:
            process.kill()
    return out.decode(), errors.decode()


async def test_node_samples_trains_and_syncs(server: ServerProcess, example: Path) -> None:
    said, errors = await run(example, server.address)
    assert "weights 1" in said, errors


def chats(engine: Any) -> None:
    """Fake engines have no chat template, and the example chats."""
    engine.apply_chat_template = lambda messages, **options: engine.tokenize(messages[-1]["content"])


async def test_node_with_tls_and_a_token(example: Path, tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    tls = {"certificate": cert, "key": key}
    engines = FakeEngines()
    engines.prepare_sampler = chats
    async with serving(tmp_path, engines=engines, tls=tls, tokens=[token("alice")]) as served:
        address = f"grpcs://localhost:{served.app.grpc_address.rpartition(':')[2]}"
        trusted = {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(cert)}
        said, errors = await run(example, address, **trusted, GRADWIRE_TOKEN=SECRETS["alice"])
        assert "weights 1" in said, errors
        said, errors = await run(example, address, **trusted)
        assert not said and errors.startswith("UNAUTHENTICATED: ") and errors.count("\n") == 1


async def test_node_sends_no_token_in_the_clear(example: Path) -> None:
    said, errors = await run(example, "gpu.example.com:50051", GRADWIRE_TOKEN="secret")
    assert not said and "in the clear; connect with grpcs://gpu.example.com:50051" in errors
