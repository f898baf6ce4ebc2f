"""Placing a job's workers: processes on this machine, each on a Unix socket.

Another launcher (Ray's placement groups) would give the same `WorkerProcess`es. Knows: subprocesses,
environments, logs. Does not know: what workers do.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from gradwire.server.engines.spill import SPILL_FOLDER
from gradwire.server.errors import Unavailable

MODULE = "gradwire.server.engines.deepspeed.worker"

# What a worker may inherit. Ranks and rendezvous of a surrounding job, credentials and proxies are none of its.
KEPT = (
    "PATH", "HOME", "USER", "TMPDIR", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH",
    "VIRTUAL_ENV", "XDG_CACHE_HOME", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", SPILL_FOLDER,
)  # fmt: skip
KEPT_PREFIXES = (
    "HF_", "TRANSFORMERS_", "TORCH_", "PYTORCH_", "NCCL_", "GLOO_", "DS_", "OMP_", "GOMP_", "MKL_",
)  # fmt: skip
SECRET_SUFFIXES = ("TOKEN", "SECRET", "KEY", "PASSWORD", "CREDENTIALS")

SHUTDOWN_SECONDS = 10.0


class WorkerProcess:
    """One started worker."""

    def __init__(self, rank: int, process: asyncio.subprocess.Process, socket_path: Path) -> None:
        self.rank = rank
        self.address = f"unix:{socket_path}"
        self.process = process
        self._log = asyncio.create_task(_copy_log(process, f"[trainer {process.pid} rank {rank}] "))

    @property
    def exit_text(self) -> str:
        """How it ended, for people."""
        code = self.process.returncode
        if code is None:
            return "is running"
        return f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"

    async def wait(self) -> None:
        """Until the process is gone and its log is read."""
        await self.process.wait()
        await self._log

    async def stop(self) -> None:
        """Make sure that it is gone: wait for its own end a while, then kill it."""
        try:
            await asyncio.wait_for(self.process.wait(), SHUTDOWN_SECONDS)
        except TimeoutError:
            with suppress(ProcessLookupError):
                self.process.kill()
        await self.wait()

    def kill(self) -> None:
        """Now."""
        with suppress(ProcessLookupError):
            self.process.kill()


class LocalLauncher:
    """Workers as processes of this machine. Sockets lie in a folder of their own that only this user can enter."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    async def launch(self, world: int) -> list[WorkerProcess]:
        """Start `world` workers; they may not listen yet. A CUDA machine gives each its own device."""
        # Short: the path of a Unix socket has at most 107 bytes.
        self._folder = Path(tempfile.mkdtemp(prefix="gradwire-"))
        devices = visible_devices()
        if devices and len(devices) < world:
            raise Unavailable("NOT_ENOUGH_DEVICES", f"{world} workers need a device each; there are {len(devices)}")
        started: list[WorkerProcess] = []
        try:
            for rank in range(world):
                started.append(await self._start(rank, world, devices[rank] if devices else None))
        except BaseException:  # nobody else knows of them yet
            for worker in started:
                worker.kill()
            await asyncio.gather(*(worker.wait() for worker in started))
            raise
        return started

    def clean(self) -> None:
        """Remove the sockets."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _start(self, rank: int, world: int, device: str | None) -> WorkerProcess:
        assert self._folder is not None
        path = self._folder / f"{rank}.sock"
        environment = worker_environment(os.environ)
        if device is not None:
            environment["CUDA_VISIBLE_DEVICES"] = device
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", MODULE,
            "--socket", str(path), "--rank", str(rank), "--world", str(world), "--parent", str(os.getpid()),
            stdin=asyncio.subprocess.PIPE,  # the lifeline: closed when this process ends
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
        )  # fmt: skip
        return WorkerProcess(rank, process, path)


def worker_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """A clean environment: what is needed to run, and nothing that names another job or opens a door."""
    kept = {
        name: value
        for name, value in inherited.items()
        if (name in KEPT or name.startswith(KEPT_PREFIXES)) and not name.upper().endswith(SECRET_SUFFIXES)
    }
    # Threads that wait for each other must not spin: where a sampler or a test shares the cores, spinning made a
    # training call five times slower (98 s against 19 s on two cores); alone on the machine it gains 6 %.
    return (
        {"OMP_WAIT_POLICY": "PASSIVE"}
        | kept
        | {
            "PYTHONUNBUFFERED": "1",
            "HF_HUB_OFFLINE": "1",  # the model is a local folder
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "TQDM_DISABLE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
    )


def free_port() -> int:
    """A TCP port of the loopback interface that nobody used just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def visible_devices() -> list[str]:
    """CUDA devices, without importing torch: it would open them in this process."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [device for device in named.split(",") if device.strip() and device.strip() != "-1"]
    return sorted((path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*")), key=int)


async def _copy_log(process: asyncio.subprocess.Process, prefix: str) -> None:
    assert process.stdout is not None
    while True:
        try:
            line = await process.stdout.readline()
        except ValueError:  # a line longer than the stream's buffer; the rest of it follows as another
            continue
        if not line:
            return
        sys.stderr.write(prefix + line.decode(errors="replace").rstrip("\n") + "\n")
