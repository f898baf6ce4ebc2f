"""Packed rows score as rows alone do, on several architectures, without a word between the rows."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GemmaConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from gradwire.server.engines.deepspeed.model import PolicyModel, load_policy, tensors_of
from gradwire.server.engines.deepspeed.packing import plan
from gradwire.server.engines.training import TrainingBatch
from gradwire.server.errors import InvalidArgument, Unimplemented
from tests.engines.deepspeed.support import group_batch, random_batch

SMALL: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
    "initializer_range": 0.2,
}
ARCHITECTURES = {
    "llama": LlamaConfig(**SMALL, tie_word_embeddings=True),
    "llama-untied": LlamaConfig(**SMALL, tie_word_embeddings=False),
    "qwen2": Qwen2Config(**SMALL),
    "qwen3": Qwen3Config(**SMALL),
    "mistral-window": MistralConfig(**SMALL, sliding_window=6),
    "gemma": GemmaConfig(**SMALL),
}


@pytest.fixture(scope="module", params=ARCHITECTURES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    path: Path = tmp_path_factory.mktemp(str(request.param))
    AutoModelForCausalLM.from_config(ARCHITECTURES[request.param]).save_pretrained(path)
    return path


def score(policy: PolicyModel, batch: TrainingBatch, budget: int, temperature: float = 1.0) -> torch.Tensor:
    assert batch.loss_mask is not None
    found = torch.zeros(2, len(batch.input_ids))
    for part in plan(batch.input_ids, batch.row_offsets, batch.loss_mask, budget=budget):
        with torch.no_grad():
            found[:, part.source] = policy(*tensors_of(part, torch.device("cpu")), temperature)
    return found


def score_rows_alone(model: PreTrainedModel, batch: TrainingBatch, temperature: float = 1.0) -> torch.Tensor:
    assert batch.loss_mask is not None
    found = torch.zeros(2, len(batch.input_ids))
    for start, end in pairwise(batch.row_offsets):
        row = torch.from_numpy(batch.input_ids[start:end].astype(np.int64))
        with torch.no_grad():
            scores = (model(input_ids=row[None]).logits[0] / temperature).log_softmax(-1)
        found[0, start : end - 1] = scores[:-1].gather(-1, row[1:, None])[:, 0]
        found[1, start : end - 1] = -(scores.exp() * scores).sum(-1)[:-1]
    return found * torch.from_numpy(batch.loss_mask)


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_packed_rows_score_as_rows_alone(folder: Path, backend: str) -> None:
    policy = load_policy(folder, dtype="float32", gradient_checkpointing=False)
    alone = AutoModelForCausalLM.from_pretrained(folder, attn_implementation=backend)
    for batch in (random_batch(1, 9, vocabulary=97), group_batch(2, vocabulary=97)):
        for budget in (10_000, 40):
            error = score(policy, batch, budget, 0.7) - score_rows_alone(alone, batch, 0.7)
            assert float(error.abs().max()) < 1e-5


def test_a_row_does_not_change_with_its_neighbours(folder: Path) -> None:
    policy = load_policy(folder, dtype="float32", gradient_checkpointing=False)
    batch = random_batch(3, 6, vocabulary=97)
    other = TrainingBatch(batch.input_ids.copy(), batch.row_offsets, batch.row_width, batch.loss_mask, batch.columns)
    end = int(batch.row_offsets[1])
    other.input_ids[:end] = (other.input_ids[:end] + 1) % 97
    before, after = score(policy, batch, 10_000), score(policy, other, 10_000)
    assert float((before - after)[:, end:].abs().max()) < 1e-6
    assert float((before - after)[:, :end].abs().max()) > 1e-2


def test_gradient_checkpointing_changes_nothing(tmp_path: Path) -> None:
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(ARCHITECTURES["llama"]).save_pretrained(tmp_path)
    batch = group_batch(5, vocabulary=97)
    assert batch.loss_mask is not None
    gradients = []
    for checkpointing in (False, True):
        policy = load_policy(tmp_path, dtype="float32", gradient_checkpointing=checkpointing)
        for part in plan(batch.input_ids, batch.row_offsets, batch.loss_mask, budget=10_000):
            policy(*tensors_of(part, torch.device("cpu")), 1.0).sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None]))
    assert torch.allclose(*gradients, atol=1e-5)


def test_tied_weights_stand_once_under_their_first_name(folder: Path) -> None:
    policy = load_policy(folder, dtype="float32", gradient_checkpointing=False)
    names = list(policy.hf_parameters())
    assert names[0] == "model.embed_tokens.weight"
    assert ("lm_head.weight" in names) is not policy.hf_config.tie_word_embeddings
    expected = dict(AutoModelForCausalLM.from_pretrained(folder).named_parameters())
    assert names == list(expected)


def test_a_model_whose_logits_are_not_linear_is_refused(tmp_path: Path) -> None:
    from transformers import CohereConfig

    config = {key: value for key, value in SMALL.items() if key != "head_dim"}
    AutoModelForCausalLM.from_config(CohereConfig(**config, logit_scale=0.25)).save_pretrained(tmp_path)
    with pytest.raises(Unimplemented, match="computes logits in a way"):
        load_policy(tmp_path, dtype="float32", gradient_checkpointing=False)


def test_a_model_with_capped_attention_is_refused(tmp_path: Path) -> None:
    from transformers import Gemma2Config

    AutoModelForCausalLM.from_config(Gemma2Config(**SMALL)).save_pretrained(tmp_path)
    with pytest.raises(Unimplemented, match="soft-capping"):
        load_policy(tmp_path, dtype="float32", gradient_checkpointing=False)


def test_an_unknown_dtype_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="float32, bfloat16"):
        load_policy(tmp_path, dtype="float16", gradient_checkpointing=False)
