"""What the tests of the Arena's door share: deployments on the run's server, and the real client's environment."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradwire.client import Client
from tests.arena.bundles import NETWORKS
from tests.serving import ServerProcess

HERE = Path(__file__).parent
PEER = HERE.parents[1] / ".venv-agilerl" / "bin"


def peer_command(program: str) -> str:
    """A program of the environment that has the real `agilerl-arena`."""
    if not (PEER / program).exists():
        pytest.skip("agilerl-arena is not installed: make agilerl")
    return str(PEER / program)


def peer_environment(home: Path, http: str) -> dict[str, str]:
    """Nothing of ours, and the Arena is this server."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "COLUMNS": "300",
        "ARENA_BASE_URL": f"http://{http}",
        "ARENA_API_KEY": "any",
    }


@pytest.fixture(scope="module")
def deployed(server: ServerProcess) -> Iterator[str]:
    """A chat, and a deployment of each bundle; the HTTP door's address."""
    with Client(server.address) as client:
        client.deployments.deploy_llm("talk")
        for name in NETWORKS:
            client.deployments.deploy_policy(name, name, deterministic=None if name == "iris" else True)
        yield server.doors["http"]
        for name in ("talk", *NETWORKS):
            client.deployments.undeploy(name)


@pytest.fixture(scope="module")
def record(deployed: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the real client found; see peer.py."""
    home = tmp_path_factory.mktemp("home")
    command = [peer_command("python"), str(HERE / "peer.py"), deployed]
    ran = subprocess.run(
        command, env=peer_environment(home, deployed), capture_output=True, text=True, timeout=200, check=False
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    return dict(json.loads(ran.stdout.splitlines()[-1]))
