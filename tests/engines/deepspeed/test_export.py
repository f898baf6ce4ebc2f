"""Weights leave through shared memory: bytes, checksums and norm agree with the model's files."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.engines.weights import WeightManifest
from gradwire.server.errors import InvalidArgument
from tests.engines.deepspeed.support import running, tiny_config

pytestmark = pytest.mark.slow

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


@pytest.mark.parametrize(("stage", "workers"), [(0, 1), (3, 2)])
async def test_export_checksums_and_norm(stage: int, workers: int) -> None:
    config = tiny_config(zero_stage=stage, num_workers=workers)
    on_disk = load_file(f"{config.model_path}/model.safetensors")
    async with running(config) as trainer:
        for dtype, kind in DTYPES.items():
            manifest = await trainer.weight_manifest(dtype)
            assert manifest.tensors[0].name == "model.embed_tokens.weight"
            assert {spec.name for spec in manifest.tensors} == on_disk.keys()
            assert all(spec.offset % 64 == 0 for spec in manifest.tensors)
            with SharedSegment.create(manifest.total_bytes) as segment:
                await trainer.export_weights(segment.name, manifest)
                found = {spec.name: segment.array(spec.offset, spec.nbytes).tobytes() for spec in manifest.tensors}
                segment.unlink()
            for name, data in found.items():
                assert data == on_disk[name].to(kind).contiguous().view(torch.uint8).numpy().tobytes()
            checksums = {c.name: c.sha256 for c in await trainer.checksums(dtype)}
            assert checksums == {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}
        norm = math.sqrt(sum(float(tensor.double().square().sum()) for tensor in on_disk.values()))
        assert await trainer.weight_norm() == pytest.approx(norm, rel=1e-12)


async def test_what_does_not_fit_is_refused() -> None:
    async with running(tiny_config()) as trainer:
        manifest = await trainer.weight_manifest("F32")
        first, *others = manifest.tensors
        small = SharedSegment.create(1024)
        with small:
            small_name = small.name
            for segment, wrong, text in (
                (small_name, manifest, "has 1024 bytes, the manifest needs"),
                ("gradwire-none", manifest, "no shared-memory segment"),
                ("../etc", manifest, "segment"),
                (small_name, WeightManifest(tuple(others), manifest.total_bytes), "embed_tokens"),
                (small_name, WeightManifest((replace(first, shape=(1, 2)), *others), 64), "the model's is"),
                (small_name, WeightManifest((replace(first, nbytes=4), *others), 64), "do not fit its shape"),
            ):
                with pytest.raises(InvalidArgument, match=text):
                    await trainer.export_weights(segment, wrong)
            small.unlink()
        with pytest.raises(InvalidArgument, match="F32, BF16, F16"):
            await trainer.weight_manifest("I8")
        assert await trainer.weight_norm() > 0
