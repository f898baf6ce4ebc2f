"""The demo as a user runs it, on the tiny model: its results, Ctrl-C, and how it fails."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.serving import descendants

DEMO = Path(__file__).parents[2] / "examples" / "grpo_demo.py"
SMALL = ("--model", "tiny", "--prompts", "4", "--group", "4")


def start(*flags: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(DEMO), *SMALL, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_trains_measures_and_reloads_its_checkpoint(tmp_path: Path) -> None:
    demo = start("--steps", "2", "--evaluate-every", "1", "--out", str(tmp_path))
    output, _ = demo.communicate(timeout=500)
    assert demo.returncode == 0, output
    assert "are those of the trained sampler" in output

    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [record["kind"] for record in records] == ["held_out", "step", "held_out", "step", "held_out", "summary"]
    steps = [record for record in records if record["kind"] == "step"]
    assert [step["weight_version"] for step in steps] == [1, 2]
    assert all(step["grad_norm"] > 0 and step["tokens"] > 0 for step in steps)
    # Sampler and trainer hold the same weights, so they give the same log-probs: after a sync, too.
    assert all(step["approx_kl"] < 1e-6 and step["clip_fraction"] == 0 for step in steps)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_ends_it_and_its_server(tmp_path: Path) -> None:
    demo = start("--steps", "1000", "--out", str(tmp_path))
    assert demo.stdout is not None
    for line in demo.stdout:
        if "step 1/1000" in line:
            break
    processes = descendants(demo.pid)
    assert any("serve" in command for command in processes.values())
    demo.send_signal(signal.SIGINT)
    output, _ = demo.communicate(timeout=120)
    assert demo.returncode == 130, output
    assert "interrupted" in output
    deadline = time.monotonic() + 20  # helpers of the engines notice a moment later that their parents are gone
    while any(Path(f"/proc/{pid}").exists() for pid in processes) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not {pid: command for pid, command in processes.items() if Path(f"/proc/{pid}").exists()}


def test_it_fails_where_no_server_answers(tmp_path: Path) -> None:
    demo = start("--address", "127.0.0.1:1", "--out", str(tmp_path))
    output, _ = demo.communicate(timeout=120)
    assert demo.returncode == 1
    assert "no gradwire server answers at 127.0.0.1:1" in output


@pytest.mark.slow
def test_it_fails_with_the_servers_own_words(tmp_path: Path) -> None:
    demo = start("--model", "no-such-model", "--out", str(tmp_path))
    output, _ = demo.communicate(timeout=120)
    assert demo.returncode == 1
    assert "the server did not start" in output and "no-such-model" in output
