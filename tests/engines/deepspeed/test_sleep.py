"""Sleep gives memory back to the system, and what wakes goes on as if nothing had been, bit for bit.

So it does after zero_grad, which is tried here because here are jobs of every stage.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from gradwire.server.engines.deepspeed import DeepSpeedTrainer
from gradwire.server.engines.spill import SPILL_FOLDER
from gradwire.server.engines.training import LossSpec, OptimizerConfig, SleepMode, StepResult, TrainingConfig
from gradwire.server.engines.weights import MemoryReport, TensorChecksum
from gradwire.server.errors import FailedPrecondition, ResourceExhausted, Unavailable
from tests.engines.deepspeed.support import random_batch, running, tiny_config
from tests.large_model import VOCABULARY, save_large_model
from tests.serving import descendants

pytestmark = pytest.mark.slow

LOSS = LossSpec("grpo")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A model's folder, and its number of parameters."""
    folder = tmp_path_factory.mktemp("llama")
    return folder, save_large_model(folder, layers=2)


# Bytes a parameter over all ranks: weights, then master weights, gradients and the two moments.
SHAPES = [
    pytest.param({"zero_stage": 0}, (4, 12), id="stage0-float32"),
    pytest.param({"zero_stage": 1, "dtype": "bfloat16", "num_workers": 2}, (2 * 2, 4 + 2 * 4 + 8), id="stage1-bf16-x2"),
    pytest.param({"zero_stage": 2, "num_workers": 2}, (2 * 4, 4 + 4 + 8), id="stage2-float32-x2"),
    pytest.param({"zero_stage": 3, "dtype": "bfloat16", "num_workers": 2}, (2, 4 + 4 + 8), id="stage3-bf16-x2"),
]


@pytest.mark.parametrize(("changes", "sizes"), SHAPES)
async def test_memory_is_given_back_and_every_bit_returns(
    model: tuple[Path, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    sizes: tuple[int, int],
) -> None:
    folder, parameters = model
    # Every large tensor is a mapping of its own, so that a limit of the address space is one of what tensors may take:
    # otherwise a heap that keeps its room, or another thread's, may serve what should be refused.
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(64 << 10))
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    async with running(_config(folder, **changes)) as trainer:
        await trainer.fwd_bwd(random_batch(1, 4, vocabulary=VOCABULARY), LOSS)
        await trainer.step()
        await trainer.save_checkpoint(tmp_path / "a", name="a")
        expected = await _accumulate_and_step(trainer)

        await trainer.load_checkpoint(tmp_path / "a")
        # Gradients that are dropped leave no trace at any stage, no more than a sleep does.
        await trainer.fwd_bwd(random_batch(5, 4, vocabulary=VOCABULARY), LOSS)
        assert await trainer.zero_grad() == 1
        lp, non_lp = (size * parameters for size in sizes)
        result = await _accumulate_and_step(trainer, sleeping=lambda: _sleep_in_steps(trainer, lp, non_lp))
        assert result == expected


async def _accumulate_and_step(trainer: DeepSpeedTrainer, sleeping: Any = None) -> tuple[float, list[TensorChecksum]]:
    """Two calls and a step, with a sleep in the middle: the gradients' norm and the new weights."""
    await trainer.fwd_bwd(random_batch(2, 4, vocabulary=VOCABULARY), LOSS)
    if sleeping is not None:
        await sleeping()
    await trainer.fwd_bwd(random_batch(3, 4, vocabulary=VOCABULARY), LOSS)
    step: StepResult = await trainer.step()
    return step.grad_norm, await trainer.checksums("F32")


async def _sleep_in_steps(trainer: DeepSpeedTrainer, lp: int, non_lp: int) -> None:
    """The order of a training loop: non_lp, sync, lp_params; then all at once."""
    batch = random_batch(4, 2, vocabulary=VOCABULARY)
    scores = (await trainer.fwd_no_grad(batch)).log_probs
    sums = await trainer.checksums("F32")
    await trainer.empty_cache()  # so that what follows is no garbage but state
    report = await trainer.sleep(SleepMode.NON_LP)
    assert report.changed and _freed(report) > 0.8 * non_lp, (report, non_lp)
    assert await trainer.checksums("F32") == sums  # what a sync would carry
    assert ((await trainer.fwd_no_grad(batch)).log_probs == scores).all()
    await trainer.empty_cache()
    report = await trainer.sleep(SleepMode.LP_PARAMS)
    assert report.changed and _freed(report) > 0.8 * lp, (report, lp)
    report = await trainer.sleep(SleepMode.ALL)
    assert not report.changed and abs(_freed(report)) < 0.05 * (lp + non_lp)
    with pytest.raises(FailedPrecondition, match=r"ZeroGrad needs .* call WakeTraining"):
        await trainer.zero_grad()
    assert (await trainer.wake()).changed
    assert not (await trainer.wake()).changed
    await trainer.empty_cache()
    report = await trainer.sleep(SleepMode.ALL)
    assert report.changed and _freed(report) > 0.8 * (lp + non_lp), (report, lp + non_lp)
    await trainer.empty_cache()
    await _refused_for_want_of_memory(trainer)
    report = await trainer.wake()
    assert report.changed and _freed(report) < -0.8 * (lp + non_lp)


async def _refused_for_want_of_memory(trainer: DeepSpeedTrainer) -> None:
    """One rank that cannot have its memory back keeps all asleep, and whole."""
    poor = _workers()[0]
    room = psutil.Process(poor).memory_info().vms + (32 << 20)
    unlimited = resource.prlimit(poor, resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))
    try:
        with pytest.raises(ResourceExhausted, match=r"needs \d+ bytes to wake.*it sleeps on") as caught:
            await trainer.wake()
    finally:
        resource.prlimit(poor, resource.RLIMIT_AS, unlimited)
    assert caught.value.reason == "NO_MEMORY_TO_WAKE"
    with pytest.raises(FailedPrecondition, match="WakeTraining"):
        await trainer.weight_norm()


def _freed(report: MemoryReport) -> int:
    return report.before_bytes - report.after_bytes


def _config(folder: Path, **changes: Any) -> TrainingConfig:
    return tiny_config(
        model="llama", model_path=str(folder), optimizer=OptimizerConfig(lr=1e-3, weight_decay=0.01), **changes
    )


async def test_a_sleep_that_fails_leaves_all_ranks_awake_and_a_crash_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spill = tmp_path / "spill"
    monkeypatch.setenv(SPILL_FOLDER, str(spill))
    async with running(tiny_config(num_workers=2)) as trainer:
        sums = await trainer.checksums("F32")
        await trainer.fwd_bwd(random_batch(1, 8), LOSS)
        with pytest.raises(ResourceExhausted, match=rf"{spill}: No such file") as caught:
            await trainer.sleep(SleepMode.ALL)
        assert caught.value.reason == "SPILL_FAILED"

        spill.mkdir()
        full, other = _workers()
        unlimited = resource.prlimit(full, resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))
        with pytest.raises(ResourceExhausted, match="File too large"):  # said by one rank, and followed by both
            await trainer.sleep(SleepMode.ALL)
        assert not _deleted_files(full, spill) and not _deleted_files(other, spill)
        assert await trainer.checksums("F32") == sums
        assert (await trainer.step()).grad_norm > 0

        resource.prlimit(full, resource.RLIMIT_FSIZE, unlimited)
        await _refusals(trainer, tmp_path)
        assert _deleted_files(full, spill) and _deleted_files(other, spill)  # there, and nameless
        assert not list(spill.iterdir())
        os.kill(other, signal.SIGKILL)
        with pytest.raises(Unavailable, match="signal 9"):
            await asyncio.wait_for(_ill(trainer), 30)
    assert not list(spill.iterdir())


async def _refusals(trainer: DeepSpeedTrainer, folder: Path) -> None:
    """What needs a sleeping part is refused, and says what to call; ends all asleep."""
    batch = random_batch(1, 3)
    assert (await trainer.sleep(SleepMode.NON_LP)).changed
    manifest = await trainer.weight_manifest("F32")
    for call in (
        trainer.fwd_bwd(batch, LOSS),
        trainer.step(),
        trainer.save_checkpoint(folder / "a", name="a"),
        trainer.load_checkpoint(folder / "a"),
    ):
        with pytest.raises(FailedPrecondition, match=r"gradients and optimizer state, which sleep; call WakeTraining"):
            await call
    assert (await trainer.sleep(SleepMode.LP_PARAMS)).changed
    for reading in (
        trainer.fwd_no_grad(batch),
        trainer.weight_norm(),
        trainer.checksums("F32"),
        trainer.export_weights("gradwire-none", manifest),
    ):
        with pytest.raises(FailedPrecondition, match="weights, which sleep"):
            await reading
    assert not (await trainer.sleep(SleepMode.ALL)).changed


async def _ill(trainer: DeepSpeedTrainer) -> None:
    """Until the health check says that something is wrong."""
    while True:
        await trainer.check_health()
        await asyncio.sleep(0.05)


def _workers() -> list[int]:
    return [pid for pid, line in descendants(os.getpid()).items() if "deepspeed.worker" in line]


def _deleted_files(pid: int, folder: Path) -> list[str]:
    """Open files of a process that have no name in the folder any more."""
    targets = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            targets.append(os.readlink(link))  # noqa: PTH115
    return [target for target in targets if target.startswith(str(folder)) and target.endswith("(deleted)")]
