"""Every worked case: loss and gradient, whole, permuted, and split into micro-batches."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gradwire.server.losses.metrics import merge_metrics
from tests.losses.grid import CASES, case_name, loss_of_rows, whole_batch

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}


def check(case: dict[str, Any], dtype: torch.dtype, parts: list[list[int]]) -> None:
    logits = torch.tensor(case["logits"], dtype=dtype, requires_grad=True)
    outputs = [loss_of_rows(case, logits, rows, whole_batch(case)) for rows in parts]
    total = sum((output.loss for output in outputs), torch.zeros((), dtype=dtype))
    total.backward()
    tolerance = TOLERANCE[dtype]
    assert logits.grad is not None
    assert float(total.detach()) == pytest.approx(case["loss"], abs=tolerance)
    assert float((logits.grad - torch.tensor(case["grad_logits"], dtype=dtype)).abs().max()) < tolerance
    merged = merge_metrics(output.metrics for output in outputs)
    assert merged["loss"].result == pytest.approx(case["loss"], abs=tolerance)
    assert merged["num_loss_tokens"].result == sum(map(sum, case["loss_mask"]))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", CASES, ids=case_name)
class TestReferenceCases:
    def test_as_one_batch(self, case: dict[str, Any], dtype: torch.dtype) -> None:
        check(case, dtype, [[0, 1, 2, 3]])

    def test_rows_in_another_order(self, case: dict[str, Any], dtype: torch.dtype) -> None:
        check(case, dtype, [[2, 0, 3, 1]])

    def test_split_over_micro_batches(self, case: dict[str, Any], dtype: torch.dtype) -> None:
        check(case, dtype, [[0], [3, 1], [2]])


def test_metrics_do_not_depend_on_the_split() -> None:
    case = CASES[1]
    logits = torch.tensor(case["logits"], dtype=torch.float64)
    whole = merge_metrics([loss_of_rows(case, logits, [0, 1, 2, 3], whole_batch(case)).metrics])
    parts = merge_metrics(loss_of_rows(case, logits, rows, whole_batch(case)).metrics for rows in ([1], [0, 3], [2]))
    assert parts.keys() == whole.keys()
    for name in whole:
        assert parts[name].result == pytest.approx(whole[name].result, rel=1e-12)
