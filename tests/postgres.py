"""A real PostgreSQL for the tests that want one: of the machine's own packages, in a temporary folder, on a socket."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65534  # PostgreSQL refuses to run as root


def binaries() -> Path | None:
    """The folder of initdb and postgres; None when there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).resolve().parent if on_path else None


@contextmanager
def running_postgres() -> Iterator[str]:
    """A server that lasts as long as the block; the URL of its first database. Nothing listens on the network."""
    bin_folder = binaries()
    assert bin_folder is not None
    # A socket's path may have 107 characters, fewer than pytest's own folders need.
    folder = Path(tempfile.mkdtemp(prefix="gw-pg-"))
    data = folder / "data"
    as_user = {"user": _NOBODY, "group": _NOBODY} if os.geteuid() == 0 else {}
    if as_user:
        os.chown(folder, _NOBODY, _NOBODY)
    options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off -c max_connections=60"
    steps = {
        "initdb": ["initdb", "-D", str(data), "-U", "gradwire", "-A", "trust", "--no-sync", "-E", "UTF8"],
        "start": ["pg_ctl", "-D", str(data), "-w", "-o", options, "-l", str(folder / "log"), "start"],
        "stop": ["pg_ctl", "-D", str(data), "-w", "-m", "immediate", "stop"],
    }

    def do(step: str) -> None:
        program, *arguments = steps[step]
        command = [str(bin_folder / program), *arguments]
        # Not through a pipe: the server inherits it, and the read would not end before the server does.
        with (folder / "output").open("w+") as output:
            code = subprocess.run(command, stdout=output, stderr=output, timeout=60, cwd="/", **as_user).returncode  # type: ignore[call-overload]
            output.seek(0)
            assert code == 0, f"{step}: {output.read()}"

    try:
        do("initdb")
        do("start")
        try:
            yield f"postgresql://gradwire@/postgres?host={folder}"
        finally:
            do("stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
