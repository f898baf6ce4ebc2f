"""A process that does what it is told, one JSON line at a time: each side of a comparison has its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self


class Child:
    """A module of this folder that calls `obey`. A context manager; the process ends with it."""

    def __init__(
        self, module: str, *arguments: str, environment: dict[str, str] | None = None, python: str = sys.executable
    ) -> None:
        self._process = subprocess.Popen(
            [python, "-m", f"benchmarks.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )

    def call(self, **command: Any) -> Any:
        """Its answer to a command; blocks."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a process of the benchmark died; what it said is above")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def obey(answer: Callable[[dict[str, Any]], Any]) -> None:
    """The child's side: answer commands until there are no more."""
    ours = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print to stdout what nobody asked for
    for line in sys.stdin:
        ours.write(json.dumps(answer(json.loads(line))) + "\n")
        ours.flush()
