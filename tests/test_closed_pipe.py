"""`gradwire ... | head`: whoever reads has had enough. The command ends quietly, as by SIGPIPE."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gradwire.server.cli import connecting, main
from tests.arena.bundles import write_bundles

Closed = Callable[[Callable[[], int]], int | None]


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Closed:
    """Runs something while standard output is a pipe that nobody reads; what it returns, or None for the error."""

    def run(work: Callable[[], int]) -> int | None:
        reading, writing = os.pipe()
        os.close(reading)
        out = os.fdopen(writing, "w", buffering=1)  # each line goes into the pipe at once
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            try:
                return work()
            except BrokenPipeError:
                return None
            finally:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, writing)
                os.close(nowhere)
                out.close()

    return run


def test_commands_end_quietly_when_nobody_reads(
    closed: Closed, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_bundles(tmp_path)
    for arguments in (["policy", "inspect", str(tmp_path / "iris")], ["model", "list"], ["--help"], ["deploy", "-h"]):
        assert closed(partial(main, arguments)) == 141, arguments
        assert capfd.readouterr().err == "", arguments


def test_commands_that_ask_a_server_leave_it_to_main(closed: Closed, capfd: pytest.CaptureFixture[str]) -> None:
    async def work() -> int:
        print("a line")
        return 0

    assert closed(lambda: connecting.exit_code("deployments", argparse.Namespace(json=False), work)) is None
    assert capfd.readouterr().err == ""
