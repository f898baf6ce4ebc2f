"""A random Llama large enough for its memory to be seen among a process's own."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from gradwire.server.models import resolve_model

VOCABULARY = 4096  # with the tokenizer of `tiny`, which uses the first few


def save_large_model(folder: Path, *, layers: int) -> int:
    """Write the model, 4.2 M parameters a layer and as many beside, float32; the number of its parameters."""
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=512, intermediate_size=2048, num_hidden_layers=layers,
        num_attention_heads=8, num_key_value_heads=8, max_position_embeddings=256,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(resolve_model("tiny") / name, folder / name)
    return model.num_parameters()
