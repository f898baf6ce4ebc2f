"""The process itself: begins, drains, ends clean; lives on when its engines are killed."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from gradwire.client import Client, FailedPreconditionError, GradwireError, Health, JobState
from tests.serving import ServerProcess, descendants


def wait_until(condition: object, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.1)


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def trainer_pids(server: ServerProcess) -> list[int]:
    return [pid for pid, line in descendants(server.pid).items() if "deepspeed.worker" in line]


def leftovers() -> set[str]:
    """Segments of shared memory that no process has open: other tests may have servers of their own."""
    found = set()
    for path in Path("/dev/shm").glob("gradwire-*"):
        with suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found.add(path.name)
    return found


def test_kills_are_noticed_and_the_front_lives_on(tmp_path: Path) -> None:
    """One server for all of it: starting one costs a quarter of a minute."""
    before = leftovers()
    with (
        ServerProcess("--model", "tiny", "--http", "127.0.0.1:0", "--data-dir", str(tmp_path)) as server,
        Client(server.address, timeout=60) as client,
    ):
        assert urllib.request.urlopen(f"http://{server.doors['http']}/health").status == 200
        job = client.jobs.create(training={}).training
        assert job is not None
        other = client.jobs.create(training={}).training
        assert other is not None
        first = min(trainer_pids(server))
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: JobState.FAILED in {client.jobs.get(j).state for j in (job, other)}, 10)
        failed, alive = (job, other) if client.jobs.get(job).state is JobState.FAILED else (other, job)
        assert "killed" in client.jobs.get(failed).error.lower() or "signal" in client.jobs.get(failed).error.lower()
        with pytest.raises(FailedPreconditionError, match="failed"):
            client.training.step(failed)
        client.training.fwd_bwd(alive, {"input_ids": [[1, 2, 3]]}, loss="cross_entropy")
        assert client.training.step(alive).weight_version == 1
        client.jobs.destroy(failed)
        client.weights.sync(alive)

        stream = client.sampling.generate_stream("x", max_tokens=1900, ignore_eos=True)
        next(iter(deltas := iter(stream)))
        engine = next(pid for pid, line in descendants(server.pid).items() if "EngineCore" in line)
        os.kill(engine, signal.SIGKILL)
        with pytest.raises(GradwireError):
            for _ in deltas:
                pass
        wait_until(lambda: client.jobs.get().state is JobState.FAILED, 15)
        assert client.jobs.get().error == "the sampling engine was killed by signal 9"
        with pytest.raises(FailedPreconditionError, match=r"by signal 9\. Restart the server"):
            client.sampling.generate("x", max_tokens=1)
        assert not [line for line in server.log if "Traceback" in line]
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"http://{server.doors['http']}/health")
        assert client.health() is Health.SERVING
        assert client.health("gradwire.v1.SamplingService") is Health.NOT_SERVING
        assert client.training.fwd_no_grad(alive, {"input_ids": [[1, 2, 3]]}).weight_version == 1

        children = list(descendants(server.pid))
        assert server.stop() == 0
    wait_until(lambda: gone(children), 10)
    assert leftovers() <= before


def test_a_killed_front_leaves_no_process_behind(tmp_path: Path) -> None:
    with (
        ServerProcess("--model", "tiny", "--data-dir", str(tmp_path)) as server,
        Client(server.address, timeout=60) as client,
    ):
        client.jobs.create(training={})
        children = list(descendants(server.pid))
        assert len(children) >= 2
        os.kill(server.pid, signal.SIGKILL)
        server.process.wait()
    wait_until(lambda: gone(children), 20)


def test_ctrl_c_ends_it_with_0_and_streams_may_finish(tmp_path: Path) -> None:
    with (
        ServerProcess("--model", "tiny", "--data-dir", str(tmp_path)) as server,
        Client(server.address, timeout=60) as client,
    ):
        stream = client.sampling.generate_stream("x", max_tokens=600, ignore_eos=True)
        deltas = iter(stream)
        next(deltas)
        for pid in (server.pid, *descendants(server.pid)):  # as a terminal does
            os.kill(pid, signal.SIGINT)
        assert len(stream.result().results[0].completions[0].token_ids) == 600
        assert server.process.wait(60) == 0
        server._reader.join()
        # A step of the start or the end, or an event with its time: no word of a library's.
        forms = re.compile(r"\[ *\d+\.\ds\] \w|\d{4}-\d\d-\d\d [\d:,]{12} INFO gradwire\.server\.")
        assert [line for line in server.log if not forms.match(line)] == []
        assert sum("ready" in line for line in server.log) == 1


def test_a_taken_port_and_bad_settings_are_said_plainly(server: ServerProcess, tmp_path: Path) -> None:
    def serve(*flags: str, **env: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "gradwire.server", "serve", "--data-dir", str(tmp_path), *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **env})
        assert done.stdout == ""
        return done.returncode, done.stderr

    code, text = serve("--grpc", server.address)
    assert code == 1 and "cannot listen" in text and "Traceback" not in text
    code, text = serve("--grpc", "0.0.0.0:0")
    assert code == 2 and "tls" in text and "Traceback" not in text
    code, text = serve(GRADWIRE_MODL="tiny")
    assert code == 2 and "GRADWIRE_MODEL" in text and "Traceback" not in text
    code, text = serve("--grpc", "127.0.0.1:0", "--model", "smollm3")
    assert code == 1 and "smollm2" in text and "Traceback" not in text
