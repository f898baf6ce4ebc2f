"""What Hugging Face transformers says: greedy continuations and log-probs, one row at a time, in float32."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForCausalLM


@lru_cache(maxsize=4)
def load(folder: Path) -> torch.nn.Module:
    """The model of a folder."""
    model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return model


def greedy(folder: Path, prompt: npt.NDArray[np.int32], max_tokens: int) -> list[int]:
    """Token ids of the greedy continuation, without a stop."""
    model = load(folder)
    ids = torch.from_numpy(prompt.astype(np.int64)).unsqueeze(0)
    with torch.no_grad():
        for _ in range(max_tokens):
            logits = model(input_ids=ids).logits[0, -1]
            ids = torch.cat([ids, logits.argmax().view(1, 1)], dim=1)
    return [int(token) for token in ids[0, len(prompt) :]]


def log_probs(folder: Path, tokens: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
    """float32 [T - 1]: log p of tokens[1:] given those before."""
    ids = torch.from_numpy(tokens.astype(np.int64))
    with torch.no_grad():
        lp = load(folder)(input_ids=ids.unsqueeze(0)).logits[0].log_softmax(-1)
    found: npt.NDArray[np.float32] = lp[:-1].gather(1, ids[1:, None])[:, 0].numpy()
    return found
