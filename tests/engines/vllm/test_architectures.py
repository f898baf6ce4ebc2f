"""The generic parts on other families: biases (Qwen2), norms inside attention (Qwen3), padding rows, bf16."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.models.resolve import resolve_model
from tests.engines.vllm import support
from tests.engines.vllm.support import greedy, update

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

SIZES = {
    "vocab_size": 260,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "eos_token_id": 259,
    "bos_token_id": 257,
    "pad_token_id": 256,
}


def build(folder: Path, family: str, *, tied: bool) -> None:
    """A random model of a family with the tokenizer of `tiny`."""
    import transformers

    torch.manual_seed(0)
    settings: dict[str, Any] = {**SIZES, "tie_word_embeddings": tied}
    if family == "Qwen3":
        settings["head_dim"] = 64
    model = getattr(transformers, f"{family}ForCausalLM")(getattr(transformers, f"{family}Config")(**settings))
    for parameter in model.parameters():  # biases and norms, too, or a lost one would not be seen
        torch.nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.3)
    model.tie_weights()
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(resolve_model("tiny")) / name, folder / name)


@pytest.mark.parametrize(("family", "tied"), [("Qwen2", True), ("Qwen3", False)])
async def test_greedy_checksums_and_update(tmp_path: Path, family: str, tied: bool) -> None:
    from transformers import AutoModelForCausalLM

    build(tmp_path, family, tied=tied)
    sampler = await support.started(SamplerConfig(family, str(tmp_path), kv_cache_bytes=64 << 20))
    try:
        reference = support.Reference("tiny")
        reference.model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
        state = load_file(tmp_path / "model.safetensors")
        if tied:
            state.pop("lm_head.weight", None)
        assert any(name.endswith("q_proj.bias" if family == "Qwen2" else "q_norm.weight") for name in state)
        for version in (0, 1):
            if version:
                state = support.changed(state)
                await update(sampler, state, version)
                reference.load(state)
            assert await greedy(sampler) == reference.greedy(sampler.tokenize("Hello there"))
            sums = {row.name: row.sha256 for row in await sampler.checksums()}
            assert sums == {
                name: hashlib.sha256(tensor.contiguous().view(-1).view(torch.uint8).numpy()).hexdigest()
                for name, tensor in state.items()
            }
    finally:
        await sampler.shutdown()
