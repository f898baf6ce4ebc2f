"""Checkpoints: exact continuation, whole or absent, checked before use, and free of pickles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gradwire.server.engines.deepspeed import DeepSpeedTrainer
from gradwire.server.engines.training import LossSpec, OptimizerConfig, SchedulerConfig, StepResult, TrainingConfig
from gradwire.server.errors import AlreadyExists, FailedPrecondition, NotFound, ResourceExhausted
from tests.engines.deepspeed.support import largest_difference, random_batch, running, tiny_config, weights_of

pytestmark = pytest.mark.slow

SCHEDULER = SchedulerConfig(name="cosine", warmup_steps=1, total_steps=6)


async def train(trainer: DeepSpeedTrainer, *seeds: int) -> StepResult:
    for seed in seeds:
        await trainer.fwd_bwd(random_batch(seed, 5), LossSpec("grpo", {"entropy_coeff": 0.01}))
        result = await trainer.step()
    return result


async def continued(config: TrainingConfig, path: Path) -> tuple[StepResult, dict[str, torch.Tensor]]:
    """The third step of a run whose first two are in a checkpoint, in a process of its own."""
    async with running(config) as trainer:
        loaded = await trainer.load_checkpoint(path)
        assert loaded.step == 2
        return await train(trainer, 3), await weights_of(trainer)


def files_under(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize(("dtype", "stage"), [("float32", 0), ("float32", 3), ("bfloat16", 0)])
async def test_save_load_continue_is_the_uninterrupted_run_bit_for_bit(tmp_path: Path, dtype: str, stage: int) -> None:
    config = tiny_config(dtype=dtype, zero_stage=stage, scheduler=SCHEDULER)
    async with running(config) as trainer:
        await train(trainer, 1, 2)
        info = await trainer.save_checkpoint(tmp_path / "two", name="two")
        assert (info.step, info.weight_version, info.name) == (2, 2, "two")
        expected = await train(trainer, 3)
        weights = await weights_of(trainer)
    result, found = await continued(config, tmp_path / "two")
    assert (result.grad_norm, result.lr, result.step) == (expected.grad_norm, expected.lr, expected.step)
    assert all(torch.equal(found[name], weights[name]) for name in weights)


@pytest.mark.parametrize("optimizer", [OptimizerConfig(lr=1e-3), OptimizerConfig("sgd", lr=1e-2, momentum=0.9)])
async def test_a_checkpoint_fits_any_stage_and_any_number_of_workers(
    tmp_path: Path, optimizer: OptimizerConfig
) -> None:
    config = tiny_config(zero_stage=2, num_workers=2, scheduler=SCHEDULER, optimizer=optimizer)
    async with running(config) as trainer:
        await train(trainer, 1, 2)
        await trainer.save_checkpoint(tmp_path / "two", name="two")
        expected = await train(trainer, 3)
        weights = await weights_of(trainer)
    for stage, workers in ((0, 1), (1, 2), (3, 2)):
        other = tiny_config(zero_stage=stage, num_workers=workers, scheduler=SCHEDULER, optimizer=optimizer)
        result, found = await continued(other, tmp_path / "two")
        assert result.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
        assert largest_difference(found, weights) < 1e-4


async def test_the_export_is_a_hugging_face_model(tmp_path: Path) -> None:
    async with running(tiny_config()) as trainer:
        await train(trainer, 1)
        info = await trainer.save_checkpoint(tmp_path / "a" / "one", name="one")
        weights = await weights_of(trainer)
    model = AutoModelForCausalLM.from_pretrained(info.export_path)
    assert largest_difference({n: p.detach() for n, p in model.named_parameters()}, weights) == 0
    assert AutoTokenizer.from_pretrained(info.export_path).encode("ab") == [97, 98]
    files = files_under(Path(info.path))
    assert {file.suffix for file in files} <= {".json", ".safetensors", ".jinja"}
    assert info.nbytes == sum(file.stat().st_size for file in files if file.name != "checkpoint.json")
    assert files_under(tmp_path) == files  # nothing partial is left


async def test_bad_checkpoints_are_refused_and_the_job_goes_on(tmp_path: Path) -> None:
    config = tiny_config(optimizer=OptimizerConfig(lr=0.0))
    async with running(config) as trainer:
        await train(trainer, 1)
        path = tmp_path / "one"
        await trainer.save_checkpoint(path, name="one")
        await trainer.fwd_bwd(random_batch(2, 3), LossSpec("grpo"))
        before = await trainer.checksums("F32")

        with pytest.raises(AlreadyExists, match="never overwritten"):
            await trainer.save_checkpoint(path, name="one")
        with pytest.raises(NotFound, match="no checkpoint"):
            await trainer.load_checkpoint(tmp_path / "none")
        (tmp_path / "file").touch()
        with pytest.raises(ResourceExhausted, match="cannot write"):
            await trainer.save_checkpoint(tmp_path / "file" / "two", name="two")

        weights = path / "hf" / "model.safetensors"
        whole = weights.read_bytes()
        for damage, text in (
            (whole[:-5], "has .* bytes, .* were written"),
            (whole[:-1] + bytes([whole[-1] ^ 1]), "SHA-256 differs"),
            (None, "hf/model.safetensors is missing"),
        ):
            weights.unlink()
            if damage is not None:
                weights.write_bytes(damage)
            with pytest.raises(FailedPrecondition, match=text) as caught:
                await trainer.load_checkpoint(path)
            assert caught.value.reason == "CHECKPOINT_DAMAGED"
            if damage is None:
                weights.write_bytes(whole)
        manifest = path / "checkpoint.json"
        facts = json.loads(manifest.read_text())
        manifest.write_text(json.dumps({**facts, "optimizer": "sgd"}))
        with pytest.raises(FailedPrecondition, match="has optimizer sgd, the job has adamw"):
            await trainer.load_checkpoint(path)
        manifest.write_text("{")
        with pytest.raises(FailedPrecondition, match="cannot be read"):
            await trainer.load_checkpoint(path)

        assert await trainer.checksums("F32") == before
        assert (await trainer.step()).step == 2  # the accumulated gradients were kept too


async def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    from gradwire.server.models import resolve_model

    async with running(tiny_config()) as trainer:
        await trainer.save_checkpoint(tmp_path / "tied", name="tied")
    untied = tiny_config(model="tiny-untied", model_path=str(resolve_model("tiny-untied")))
    async with running(untied) as trainer:
        with pytest.raises(FailedPrecondition, match=r"lm_head\.weight of shape None"):
            await trainer.load_checkpoint(tmp_path / "tied")


async def test_loading_makes_a_version_that_never_was(tmp_path: Path) -> None:
    async with running(tiny_config()) as trainer:
        await trainer.save_checkpoint(tmp_path / "zero", name="zero")
        start = await trainer.checksums("F32")
        await train(trainer, 1, 2)
        loaded = await trainer.load_checkpoint(tmp_path / "zero")
        assert (loaded.step, loaded.weight_version, trainer.weight_version) == (0, 3, 3)
        assert await trainer.checksums("F32") == start
        assert (await train(trainer, 1)).step == 1
