"""From per-token losses to one number: the modes of `loss_agg_mode`.

All are linear in the tokens' losses, so each is a weight for every token. The weights of all
micro-batches and ranks together are those of the whole batch.
"""

from __future__ import annotations

from torch import Tensor

from gradwire.server.losses.config import LossConfig
from gradwire.server.losses.inputs import LossInputs
from gradwire.server.losses.normalizer import LossNormalizer


def token_weights(inputs: LossInputs, config: LossConfig, whole: LossNormalizer) -> Tensor:
    """Weight of each token's loss [N]; the batch's loss is the sum of weight x loss.

    token-mean: m / sum(m) of the whole batch. seq-mean-token-sum: m / rows.
    seq-mean-token-mean: m / (sum of m in the row) / rows. seq-mean-token-sum-norm: m / S / rows.
    `rows` counts the rows of the whole batch that have any token. prompt-mean: m / (sum of m over the
    prompt's rows) / prompts, likewise of the whole batch: `prompt_tokens` and `active_prompts`.
    """
    mask = inputs.mask
    if config.loss_agg_mode == "token-mean":
        return mask / (config.batch_num_tokens or whole.mask_sum)
    if config.loss_agg_mode == "prompt-mean":
        assert inputs.prompt_tokens is not None  # prepare_batch made it
        return mask / inputs.prompt_tokens / (config.global_batch_size or whole.active_prompts)
    rows = config.global_batch_size or whole.active_rows
    if config.loss_agg_mode == "seq-mean-token-sum":
        return mask / rows
    if config.loss_agg_mode == "seq-mean-token-mean":
        return mask / inputs.row_sum(mask).index_select(0, inputs.rows) / rows
    return mask / whole.row_width / rows
