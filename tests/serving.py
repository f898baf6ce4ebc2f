"""Starts a real server as a user does, `gradwire serve`, and ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import threading
from collections import deque
from pathlib import Path
from typing import Self

START_TIMEOUT_S = 240.0
STOP_TIMEOUT_S = 60.0
SCRIPT = Path(sysconfig.get_path("scripts")) / "gradwire"


class ServerProcess:
    """A running `gradwire serve`. `address` is HOST:PORT of its gRPC door."""

    def __init__(self, *flags: str, auth: bool = False, env: dict[str, str] | None = None) -> None:
        self.log: deque[str] = deque(maxlen=400)
        self.process = subprocess.Popen(
            [
                sys.executable,
                str(SCRIPT),
                "serve",
                "--grpc",
                "127.0.0.1:0",
                *([] if auth else ["--insecure-no-auth"]),
                *flags,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **(env or {})},
        )
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        self.ready_line = self._wait_for_ready()
        self.doors = dict(part.split("=", 1) for part in self.ready_line.split()[1:])
        self.address = self.doors["grpc"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever a test left undone, no process outlives it."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def pid(self) -> int:
        """Of the front process."""
        return self.process.pid

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.rstrip())

    def _wait_for_ready(self) -> str:
        timer = threading.Timer(START_TIMEOUT_S, self.process.kill)
        timer.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        timer.cancel()
        if not line.startswith("ready "):
            self.process.kill()
            self.process.wait()
            self._reader.join(timeout=5)
            raise RuntimeError(f"the server did not start; it said {line!r} and logged:\n" + "\n".join(self.log))
        return line

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it with a signal; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


def descendants(pid: int) -> dict[int, str]:
    """Processes below `pid` that live: pid -> command line."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if fields[0] != "Z":
            parents[int(stat.parent.name)] = int(fields[1])
    found: dict[int, str] = {}
    frontier = {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier} - found.keys()
        for child in frontier:
            try:
                found[child] = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ").strip()
            except OSError:
                continue
    return found
