"""`gradwire serve` as a process, without any engine: how it begins and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gradwire.client import Client, PermissionDeniedError, UnauthenticatedError
from tests.serving import ServerProcess

CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("GRADWIRE_")}


def serve(*flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gradwire.server", "serve", "--grpc", "127.0.0.1:0", *flags],
        env={**CLEAN, **env}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_without_a_model_begins_answers_and_ends(tmp_path: Path, number: int) -> None:
    server = ServerProcess("--http", "127.0.0.1:0", "--data-dir", str(tmp_path))
    assert set(server.doors) == {"grpc", "http"}
    with grpc.insecure_channel(server.address) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    assert server.stop(number) == 0


def test_the_first_token_is_shown_once_and_no_secret_is_logged(tmp_path: Path) -> None:
    flags = ("--data-dir", str(tmp_path), "--log-level", "debug")
    shown = re.compile(r"shown only this once: (gradwire_pat_\S+)")
    with ServerProcess(*flags, auth=True) as server:
        (first,) = shown.findall("\n".join(server.log))
        with Client(server.address) as nobody, pytest.raises(UnauthenticatedError, match="GRADWIRE_TOKEN"):
            nobody.jobs.list()
        with Client(server.address, token=first) as client:
            created = client.admin.create_token("acme", ["inference"])
            with Client(server.address, token=created.secret) as other, pytest.raises(PermissionDeniedError):
                other.jobs.list()
            with Client(server.address, token=created.secret[:-1]) as wrong, pytest.raises(UnauthenticatedError):
                wrong.sessions.list()
            assert [token.tenant for token in client.admin.list_tokens()] == ["acme", "local"]
        assert server.stop() == 0
        server._reader.join()
        log = "\n".join(server.log)
        assert "AdminService/CreateToken" in log
        assert log.count(first) == 1 and created.secret[-43:-1] not in log
    with ServerProcess(*flags, auth=True) as server:
        with Client(server.address, token=first) as client:
            client.jobs.list()
        assert server.stop() == 0
        server._reader.join()
        assert not shown.findall("\n".join(server.log)) and first not in "\n".join(server.log)


def test_a_model_that_is_not_there_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    ended = serve("--model", "smolm2", "--data-dir", str(tmp_path))
    assert ended.returncode == 1
    assert "Did you mean smollm2?" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_bad_settings_are_one_line_and_exit_code_2() -> None:
    ended = serve(GRADWIRE_LIMITS__MAX_JOB="1")
    assert ended.returncode == 2
    place = "environment variable GRADWIRE_LIMITS__MAX_JOB"
    assert ended.stderr == f"gradwire serve: {place}: limits.max_job: is no setting; did you mean max_jobs?\n"
