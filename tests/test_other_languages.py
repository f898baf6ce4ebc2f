"""The contract from another language: the Node.js example runs against the real server."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.serving import ServerProcess

EXAMPLE = Path(__file__).parents[1] / "examples" / "node"


@pytest.mark.skipif(shutil.which("npm") is None, reason="Node.js is not installed")
def test_node_samples_trains_and_syncs(server: ServerProcess, tmp_path: Path) -> None:
    folder = tmp_path / "examples" / "node"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("node_modules"))
    (tmp_path / "protos").symlink_to(EXAMPLE.parents[1] / "protos")
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=folder, check=True, timeout=120)
    done = subprocess.run(
        ["node", "train.mjs", server.address], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "weights 1" in done.stdout
