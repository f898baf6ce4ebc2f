"""Which row is named when a loss is not finite, though its gradient is."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from gradwire.server.engines.deepspeed.rank_loss import LossCall, culprit
from gradwire.server.losses import LossNormalizer
from gradwire.server.losses.inputs import LossInputs, LossOutput
from gradwire.server.losses.preference_config import CrossEntropyConfig
from gradwire.server.losses.registry import Loss


def call_of(per_token: Callable[[LossInputs], torch.Tensor], together: int = 1) -> LossCall:
    """A loss that sums what `per_token` says."""

    def function(inputs: LossInputs, config: object, whole: object) -> LossOutput:
        return LossOutput(per_token(inputs).sum(), {})

    loss = Loss("made_up", CrossEntropyConfig, lambda: function, rows_together=together)
    return LossCall(loss, loss.parse({}), function, LossNormalizer(8, 4, 8))


def batch(**values: torch.Tensor) -> LossInputs:
    """Two tokens of each of four rows, which the caller numbered 4, 7, 5 and 6."""
    rows = torch.arange(4).repeat_interleave(2)
    ids = torch.tensor([4, 7, 5, 6])
    zeros = torch.zeros(8)
    return LossInputs(zeros, zeros, torch.ones(8), rows, 4, row_ids=ids, **values)


def test_the_row_is_named_by_the_callers_number() -> None:
    old = torch.tensor([0.0, 0, 0, 0, 0, 0, 0, math.inf])
    assert culprit(batch(old_log_probs=old), call_of(lambda i: i.log_probs + i.old_log_probs)) == "row 6"


def test_rows_that_belong_together_are_named_together() -> None:
    old = torch.tensor([0.0, 0, math.inf, 0, 0, 0, 0, 0])
    assert culprit(batch(old_log_probs=old), call_of(lambda i: i.log_probs + i.old_log_probs, 2)) == "rows 6, 7"


def test_a_sum_that_overflows_names_the_largest_row() -> None:
    old = torch.tensor([1e38, 0, 2e38, 0, 1e38, 0, 0, 0])
    named = culprit(batch(old_log_probs=old), call_of(lambda i: i.log_probs + i.old_log_probs))
    assert named == "the sum over rows; row 7 has the largest loss, 2e+38"


@pytest.mark.parametrize("together", [1, 2])
def test_a_row_is_tried_with_its_own_tokens_only(together: int) -> None:
    seen = []

    def per_token(inputs: LossInputs) -> torch.Tensor:
        assert inputs.row_ids is not None and inputs.advantages is not None
        seen.append((inputs.row_ids.tolist(), inputs.rows.tolist(), inputs.advantages.tolist()))
        return inputs.advantages

    culprit(batch(advantages=torch.arange(8.0)), call_of(per_token, together))
    assert seen == (
        [([4], [0, 0], [0, 1]), ([5], [0, 0], [4, 5]), ([6], [0, 0], [6, 7]), ([7], [0, 0], [2, 3])]
        if together == 1
        else [([4, 5], [0, 0, 1, 1], [0, 1, 4, 5]), ([7, 6], [0, 0, 1, 1], [2, 3, 6, 7])]
    )
