"""A training batch in the shape of the demo's: short chat prompts, a group of completions of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

VOCABULARY = 49_152  # SmolLM2's


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of tokens, and columns of the same lengths: entry i of a column belongs to token i + 1."""

    input_ids: list[npt.NDArray[np.int32]]
    loss_mask: list[npt.NDArray[np.float32]]
    advantages: list[npt.NDArray[np.float32]]

    @property
    def size(self) -> str:
        """Rows and tokens, for people."""
        scored = int(sum(mask.sum() for mask in self.loss_mask))
        return f"{len(self.input_ids)} rows, {sum(map(len, self.input_ids)):,} tokens, {scored:,} scored"

    def head(self, rows: int) -> Batch:
        """The first rows."""
        return Batch(self.input_ids[:rows], self.loss_mask[:rows], self.advantages[:rows])


def demo_batch(prompts: int, group: int, completion_tokens: int, *, seed: int = 0) -> Batch:
    """Prompts of 42 to 48 tokens, completions of up to `completion_tokens`, advantages that sum to 0 in a group.

    The tokens are random: time does not depend on which they are.
    """
    random = np.random.default_rng(seed)
    batch = Batch([], [], [])
    for _ in range(prompts):
        prompt = random.integers(0, VOCABULARY, random.integers(42, 49))
        rewards = random.normal(size=group)
        for advantage in rewards - rewards.mean():
            length = random.integers(max(1, completion_tokens * 3 // 4), completion_tokens + 1)
            row = np.concatenate([prompt, random.integers(0, VOCABULARY, length)]).astype(np.int32)
            mask = np.zeros(len(row), np.float32)
            mask[len(prompt) - 1 : -1] = 1
            batch.input_ids.append(row)
            batch.loss_mask.append(mask)
            batch.advantages.append(mask * np.float32(advantage))
    return batch
