"""The demo's own server: `gradwire serve` as a subprocess, its log in a file, its progress on the terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# Nothing is downloaded, and vLLM does not report its use. The sampler works in float32, as the trainer does: a
# bfloat16 one would round most of each small update away, and sample from a policy that is not the trained one.
DEFAULTS = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "GRADWIRE_SAMPLER__DTYPE": "float32"}
STOP_TIMEOUT_S = 30.0


@contextmanager
def running_server(model: str, folder: Path, say: Callable[[str], None], *more_flags: str) -> Iterator[str]:
    """A server for the time of the block; gives its address. RuntimeError with its last words if it does not start."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "server.log"
    flags = ["--model", model, "--grpc", "127.0.0.1:0", "--data-dir", str(folder / "data"), "--insecure-no-auth"]
    flags += ["--stop-on-eof", *more_flags]  # even a demo that is killed leaves no server behind
    process = subprocess.Popen(
        [sys.executable, "-m", "gradwire.server", "serve", *flags],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**DEFAULTS, **os.environ},
        # Ctrl-C is for the demo, which then stops the server in order; together they would race.
        start_new_session=True,
    )
    starting = threading.Event()
    starting.set()
    reader = threading.Thread(target=_keep_log, args=(process, log, starting, say), daemon=True)
    reader.start()
    try:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        starting.clear()
        if not words or words[0] != "ready":
            process.wait(STOP_TIMEOUT_S)
            reader.join(STOP_TIMEOUT_S)
            raise RuntimeError(f"the server did not start; its log ({log}) ends with:\n{_tail(log)}")
        yield dict(word.split("=", 1) for word in words[1:])["grpc"]
    finally:
        _stop(process)
        reader.join(STOP_TIMEOUT_S)


def _keep_log(process: subprocess.Popen[str], log: Path, starting: threading.Event, say: Callable[[str], None]) -> None:
    assert process.stderr is not None
    with log.open("w", encoding="utf-8") as file:
        for line in process.stderr:
            file.write(line)
            file.flush()
            # The server's own progress begins with the seconds since its start; the rest is its libraries' talk.
            if starting.is_set() and line.startswith("["):
                seconds, _, text = line[1:].partition("] ")
                if seconds.strip().endswith("s") and text:
                    say(text.rstrip())


def _stop(process: subprocess.Popen[str]) -> None:
    """Ask it to end, then to hurry, then end it."""
    for number in (signal.SIGTERM, signal.SIGTERM):
        if process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_TIMEOUT_S / 2)
        except subprocess.TimeoutExpired:
            continue
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8").splitlines()[-15:])
