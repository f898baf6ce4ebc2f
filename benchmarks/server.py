"""`gradwire serve` as a subprocess, and the memory of its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

STOP_TIMEOUT_S = 60.0
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
ROLES = {
    "gradwire.server.engines.deepspeed.worker": "trainer worker",
    "VLLM::EngineCore": "engine core",
    "VLLM::Worker": "engine worker",
    "resource_tracker": "resource tracker",
    "gradwire.server serve": "front",
}


@dataclass(frozen=True, slots=True)
class Server:
    """A running one."""

    address: str
    pid: int
    http: str = ""
    """Its HTTP door's; empty without one."""


@contextmanager
def running_server(model: str = "", **environment: str) -> Iterator[Server]:
    """A server for the time of the block, on a free port, its data in a temporary folder.

    From then on SIGTERM ends this process as an exception does: the server must not be left behind.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="gradwire-bench-") as folder:
        command = [sys.executable, "-m", "gradwire.server", "serve", "--grpc", "127.0.0.1:0", "--data-dir", folder]
        command.append("--insecure-no-auth")
        process = subprocess.Popen(
            [*command, *(["--model", model] if model else [])],
            stdout=subprocess.PIPE,
            text=True,
            env={**OFFLINE, **os.environ, **environment},
            start_new_session=True,  # so that Ctrl-C reaches the benchmark, which then stops the server in order
        )
        try:
            assert process.stdout is not None
            words = process.stdout.readline().split()
            if not words or words[0] != "ready":
                raise RuntimeError("the server did not start; what it said is above")
            doors = dict(word.split("=", 1) for word in words[1:])
            yield Server(doors["grpc"], process.pid, doors.get("http", ""))
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def peak_memory(pid: int) -> list[tuple[str, int]]:
    """(role, VmHWM in bytes) of a process and of all below it.

    VmHWM is the highest resident size a process ever had. Pages that two processes map count in both.
    """
    return [(_role(child), _peak(child)) for child in _tree(pid)]


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of all below it, so far."""
    return sum(_cpu(child) for child in _tree(pid))


def _cpu(pid: int) -> float:
    after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def _tree(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        children.setdefault(int(after_name[1]), []).append(int(folder.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def _peak(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _role(pid: int) -> str:
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return next((role for mark, role in ROLES.items() if mark in command), command[:40])
