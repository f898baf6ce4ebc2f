"""What is checked of a request before vLLM sees it.

Knows the model's limits. Does not know sampling parameters (params.py).
"""

from __future__ import annotations

import numpy as np

from gradwire.server.engines.sampling import ModelInfo, TokenIds
from gradwire.server.errors import InvalidArgument

PROMPT = "prompt.token_ids"


def check_prompt(token_ids: TokenIds, model: ModelInfo) -> int:
    """How many tokens can be sampled after this prompt (at least 1).

    Raises InvalidArgument at `prompt.token_ids`: empty, ids outside the vocabulary, no room.
    """
    tokens = np.asarray(token_ids)
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise InvalidArgument.at(PROMPT, f"must be a row of integers, not {tokens.dtype} {tokens.shape}")
    if not tokens.size:
        raise InvalidArgument.at(PROMPT, "is empty; give at least one token")
    outside = (tokens < 0) | (tokens >= model.vocab_size)
    if outside.any():
        place = int(outside.argmax())
        raise InvalidArgument.at(
            f"{PROMPT}[{place}]",
            f"{int(tokens[place])} is not in the vocabulary, which has ids 0 to {model.vocab_size - 1}",
        )
    room = model.max_model_len - tokens.size
    if room < 1:
        raise InvalidArgument.at(
            PROMPT,
            f"{tokens.size} tokens leave no room for a sampled one in the context of {model.max_model_len}; "
            f"at most {model.max_model_len - 1} tokens fit",
            reason="PROMPT_TOO_LONG",
        )
    return int(room)


def check_priority(priority: int) -> None:
    """Raises InvalidArgument for one that vLLM's wire could not carry."""
    if abs(priority) >= 1 << 31:
        raise InvalidArgument.at("priority", f"{priority} is out of range; it must fit 32 bits")
