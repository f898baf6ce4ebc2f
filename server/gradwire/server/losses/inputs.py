"""What a loss gets and gives. Flat tensors over the scored tokens of one micro-batch.

A scored token is one whose mask is not zero. `rows` says which row each belongs to, so that losses on
sequences see sequences and never the pack they travelled in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gradwire.server.losses.metrics import Metric


@dataclass(frozen=True, slots=True)
class LossInputs:
    """N scored tokens of R rows. Every tensor is [N], in the dtype of the log-probs but for `rows` and `row_ids`."""

    log_probs: Tensor  # of the policy being trained, with gradient
    entropy: Tensor  # of softmax(logits / temperature), with gradient where the loss asks for it
    mask: Tensor  # weights, none zero
    rows: Tensor  # int64, 0 <= rows < num_rows
    num_rows: int
    advantages: Tensor | None = None
    old_log_probs: Tensor | None = None  # of the policy that sampled
    prox_log_probs: Tensor | None = None  # of the policy that the ratio is against
    ref_log_probs: Tensor | None = None  # of the policy that the KL term is against
    versions: Tensor | None = None  # weight version that sampled the token, a whole number
    prompt_tokens: Tensor | None = None  # sum of the mask over all rows of the token's prompt, of the whole batch
    row_ids: Tensor | None = None  # int64 [R]: number of each row in the caller's batch

    def row_sum(self, values: Tensor) -> Tensor:
        """Sum of values [N] over each row: [R]."""
        return values.new_zeros(self.num_rows).index_add(0, self.rows, values)

    def row_mean(self, values: Tensor) -> Tensor:
        """Masked mean of values [N] over each row, given to each of its tokens: [N]."""
        means = self.row_sum(values * self.mask) / self.row_sum(self.mask).clamp_min(torch.finfo(values.dtype).tiny)
        return means.index_select(0, self.rows)


@dataclass(frozen=True, slots=True)
class LossOutput:
    """`loss`: this micro-batch's summand of the whole batch's loss, a scalar with gradient."""

    loss: Tensor
    metrics: Mapping[str, Metric]
