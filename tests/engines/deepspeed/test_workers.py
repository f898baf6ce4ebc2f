"""Worker processes: they die with the front, their death is noticed, and they inherit little."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gradwire.server.engines.deepspeed import DeepSpeedTrainer
from gradwire.server.engines.deepspeed.launcher import worker_environment
from gradwire.server.engines.training import LossSpec, OptimizerConfig, SchedulerConfig, TrainingConfig
from gradwire.server.errors import FailedPrecondition, GradwireError, InvalidArgument, Unavailable
from tests.engines.deepspeed.support import random_batch, running, tiny_config

slow = pytest.mark.slow

FRONT = """
import asyncio, sys
from tests.engines.deepspeed.support import tiny_config
from gradwire.server.engines.deepspeed import DeepSpeedTrainer

async def main():
    trainer = DeepSpeedTrainer(tiny_config())
    await trainer.start(lambda _: None)
    print(trainer._group.workers[0].process.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@slow
@pytest.mark.parametrize("busy", [True, False])
async def test_a_dead_worker_is_noticed(busy: bool) -> None:
    async with running(tiny_config(num_workers=2)) as trainer:
        call = asyncio.create_task(trainer.fwd_bwd(random_batch(1, 3000), LossSpec("grpo"))) if busy else None
        await asyncio.sleep(1.0)
        pids = [worker.process.pid for worker in trainer._group.workers]
        os.kill(pids[1], signal.SIGKILL)
        start = time.monotonic()
        if call is not None:
            with pytest.raises(Unavailable, match="trainer worker 1 was killed by signal 9"):
                await call
        else:
            await trainer._group.workers[0].process.wait()
        assert time.monotonic() - start < 5
        with pytest.raises(Unavailable, match="was killed by signal 9"):
            await trainer.step()
        with pytest.raises(Unavailable):
            await trainer.check_health()
    assert not any(map(alive, pids))


@slow
def test_workers_do_not_outlive_a_killed_front() -> None:
    front = subprocess.Popen([sys.executable, "-c", FRONT], stdout=subprocess.PIPE, text=True)
    assert front.stdout is not None
    worker = int(front.stdout.readline())
    assert alive(worker)
    front.kill()
    front.wait()
    deadline = time.monotonic() + 10
    while alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(worker)


@slow
async def test_shutdown_leaves_nothing_and_is_legal_twice() -> None:
    trainer = DeepSpeedTrainer(tiny_config())
    with pytest.raises(FailedPrecondition, match="not running"):
        await trainer.step()
    await trainer.start(lambda _: None)
    pid = trainer._group.workers[0].process.pid
    await trainer.shutdown()
    await trainer.shutdown()
    assert not alive(pid)
    with pytest.raises(FailedPrecondition, match="not running"):
        await trainer.fwd_no_grad(random_batch(1, 1))


@slow
async def test_a_model_that_cannot_be_loaded_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "no-such-model"}')
    trainer = DeepSpeedTrainer(replace(tiny_config(), model_path=str(tmp_path)))
    with pytest.raises(GradwireError, match="no-such-model"):
        await trainer.start(lambda _: None)
    assert all(worker.process.returncode is not None for worker in trainer._group.workers)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"model_path": "/nowhere"}, "config.model_path"),
        ({"dtype": "float61"}, "config.dtype"),
        ({"zero_stage": 4}, "config.zero_stage"),
        ({"num_workers": 0}, "config.num_workers"),
        ({"max_tokens_per_micro_batch": 0}, "config.max_tokens_per_micro_batch"),
        ({"max_grad_norm": -1.0}, "config.max_grad_norm"),
        ({"optimizer": OptimizerConfig(name="adam")}, "config.optimizer.name"),
        ({"optimizer": OptimizerConfig(lr=-1)}, "config.optimizer.lr"),
        ({"scheduler": SchedulerConfig(name="cosine")}, "config.scheduler.total_steps"),
        ({"scheduler": SchedulerConfig(name="cosin", total_steps=5)}, "config.scheduler.name"),
        ({"loss": "grop"}, "config.loss"),
        ({"loss_config": {"eps": 1}}, "config.loss_config.eps"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_configuration_that_cannot_work_is_refused_at_once(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        DeepSpeedTrainer(tiny_config(**changes))
    assert field in [violation.field for violation in caught.value.violations]


def test_threads_default_to_the_cores() -> None:
    config = DeepSpeedTrainer(tiny_config(threads=0)).config
    assert isinstance(config, TrainingConfig)
    assert config.threads == len(os.sched_getaffinity(0))


def test_a_worker_inherits_no_secrets_and_no_other_jobs_rank() -> None:
    inherited = {
        "PATH": "/bin",
        "RANK": "3",
        "MASTER_ADDR": "elsewhere",
        "HF_TOKEN": "secret",
        "GRADWIRE_DATABASE_URL": "postgresql://user:secret@host",
        "https_proxy": "http://proxy",
        "OMP_WAIT_POLICY": "ACTIVE",
    }
    environment = worker_environment(inherited)
    assert environment["PATH"] == "/bin"
    assert environment["OMP_WAIT_POLICY"] == "ACTIVE"  # the operator's word counts
    assert not {"RANK", "MASTER_ADDR", "HF_TOKEN", "GRADWIRE_DATABASE_URL", "https_proxy"} & environment.keys()
    assert worker_environment({})["OMP_WAIT_POLICY"] == "PASSIVE"
