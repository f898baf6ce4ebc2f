"""A server of one's own: `gradwire serve` as a child process.

Knows: starting it, its last words when it does not start, and ending it. It ends with its owner whatever becomes
of that one: the server stops when its stdin closes. Does not know: jobs.
"""

from __future__ import annotations

import atexit
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping

_STOP_S = 60.0
_TAIL_LINES = 30


class LocalServer:
    """A running server. `grpc` and `http` are the addresses of its doors, HOST:PORT; `http` may be empty."""

    def __init__(
        self,
        *,
        grpc: str = "127.0.0.1:0",
        http: str | None = None,
        data_dir: str | None = None,
        logs: bool = True,
        startup_timeout: float = 300.0,
        check_interval: float = 2.0,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Returns when the server is ready. TimeoutError or RuntimeError tell its last words when it is not."""
        self._owner = os.getpid()
        command = [
            sys.executable,
            "-m",
            "gradwire.server",
            "serve",
            "--stop-on-eof",
            "--insecure-no-auth",
            "--grpc",
            grpc,
        ]
        command += ["--http", http] if http else []
        command += ["--data-dir", data_dir] if data_dir else []
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=None if env is None else dict(env),
            # Ctrl-C in a terminal is for the owner, who then stops the server.
            start_new_session=True,
        )
        self._logs = logs
        self._readers = [
            threading.Thread(target=read, name="gradwire-server-log", daemon=True)
            for read in (self._read_stdout, self._read_stderr)
        ]
        for reader in self._readers:
            reader.start()
        _running.add(self)
        try:
            doors = self._wait_for_ready(startup_timeout, check_interval)
        except BaseException:
            self.stop(grace_s=5.0)
            raise
        self.grpc = doors["grpc"]
        self.http = doors.get("http", "")

    @property
    def pid(self) -> int:
        """Of the server's front process."""
        return self._process.pid

    def stop(self, grace_s: float = _STOP_S) -> None:
        """Lets it drain and end, and kills it after `grace_s` seconds. Stopping again is fine."""
        if os.getpid() != self._owner:
            return  # a fork of the owner: the server is not its to stop
        _running.discard(self)
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _read_stdout(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line.strip())

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._tail.append(line.rstrip())
                if self._logs:
                    print(line, end="", file=sys.stderr, flush=True)

    def _wait_for_ready(self, timeout: float, interval: float) -> dict[str, str]:
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            try:
                line = self._lines.get(timeout=min(interval, left))
            except queue.Empty:
                if self._process.poll() is not None:
                    break
                continue
            if line.startswith("ready "):
                return dict(part.split("=", 1) for part in line.split()[1:])
        if self._process.poll() is None:
            raise TimeoutError(f"the server was not ready after {timeout:g} s (startup_timeout). {self._last_words()}")
        self._readers[1].join(timeout=5.0)
        raise RuntimeError(f"the server ended with exit code {self._process.returncode}. {self._last_words()}")

    def _last_words(self) -> str:
        return "Its last words:\n" + "\n".join(self._tail) if self._tail else "It said nothing."


_running: set[LocalServer] = set()


def _stop_all() -> None:
    for server in list(_running):
        server.stop()


atexit.register(_stop_all)
