"""How a server's process ends: in order, and at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from tests.serving import SCRIPT, descendants


def python(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_what_was_left_for_the_exit_is_done_before_the_last_word() -> None:
    ended = python(
        """
        import atexit, threading, time
        from gradwire.server.cli.leaving import leave
        class Slow:
            def __del__(self): print("taken apart")
        kept = Slow()
        atexit.register(print, "exit function")
        threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
        leave(3, lambda: print("stopped"))
        """
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "thread\nexit function\nstopped\n", "")


def test_an_end_at_once_leaves_no_process() -> None:
    ended = python(
        """
        import subprocess, sys
        from gradwire.server.cli.leaving import leave_at_once
        deaf = "import signal, subprocess, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        deaf += "print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE, text=True)
        print(child.pid, child.stdout.readline().strip(), flush=True)
        leave_at_once(1)
        """
    )
    assert ended.returncode == 1
    pids = ended.stdout.split()
    assert len(pids) == 2 and not any(running(pid) for pid in pids)


def running(pid: str) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_second_ctrl_c_ends_a_server_that_is_still_starting(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "serve", "--grpc", "127.0.0.1:0", "--insecure-no-auth", "--model", "tiny"]
    with subprocess.Popen(
        [*command, "--data-dir", str(tmp_path)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        try:
            next(line for line in server.stderr if "starting vLLM" in line)
            server.send_signal(signal.SIGINT)
            next(line for line in server.stderr if "stopping before the start" in line)
            server.send_signal(signal.SIGINT)
            since = time.monotonic()
            assert server.wait(30) == 1
            assert time.monotonic() - since < 5
            assert descendants(server.pid) == {}
        finally:
            server.kill()
