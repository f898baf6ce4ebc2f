"""Every worked case: loss and gradient, whole, permuted, and split into micro-batches."""

from __future__ import annotations

import pytest
import torch

from gradwire.server.losses.cases import LossCase, loss_of_parts, parse_case
from gradwire.server.losses.metrics import merge_metrics
from tests.losses.grid import CASES, Case, case_name, plain_rows, split_config
from tests.losses.plain import plain_loss

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}


def check(given: Case, dtype: torch.dtype, parts: list[list[int]]) -> None:
    case = parse_case(given)
    logits = torch.tensor(case.logits, dtype=dtype, requires_grad=True)
    outputs = loss_of_parts(case, logits, parts)
    total = sum((output.loss for output in outputs), torch.zeros((), dtype=dtype))
    total.backward()
    tolerance = TOLERANCE[dtype]
    assert logits.grad is not None
    assert float(total.detach()) == pytest.approx(case.expected_loss, abs=tolerance)
    assert float((logits.grad - torch.tensor(case.expected_gradient, dtype=dtype)).abs().max()) < tolerance
    merged = merge_metrics(output.metrics for output in outputs)
    assert merged["loss"].result == pytest.approx(case.expected_loss, abs=tolerance)
    if "m2_threshold" not in case.options:
        assert merged["num_loss_tokens"].result == (case.mask != 0).sum()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", CASES, ids=case_name)
class TestReferenceCases:
    def test_as_one_batch(self, case: Case, dtype: torch.dtype) -> None:
        check(case, dtype, [[0, 1, 2, 3]])

    def test_rows_in_another_order(self, case: Case, dtype: torch.dtype) -> None:
        check(case, dtype, [[2, 0, 3, 1]])

    def test_split_over_micro_batches(self, case: Case, dtype: torch.dtype) -> None:
        check(case, dtype, [[3, 2], [0, 1]] if case["config"]["loss"] == "dpo" else [[0], [3, 1], [2]])


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_the_plain_reference_gives_every_case_too(case: Case) -> None:
    logits = torch.tensor(case["logits"], dtype=torch.float64, requires_grad=True)
    loss = plain_loss(plain_rows(case, logits), *split_config(case), width=logits.shape[1])
    (gradient,) = torch.autograd.grad(loss, logits)
    assert float(loss.detach()) == pytest.approx(case["loss"], abs=1e-9)
    assert float((gradient - torch.tensor(case["grad_logits"], dtype=torch.float64)).abs().max()) < 1e-9


def metrics_of(case: LossCase, parts: list[list[int]]) -> dict[str, float]:
    outputs = loss_of_parts(case, torch.tensor(case.logits), parts)
    return {name: metric.result for name, metric in merge_metrics(output.metrics for output in outputs).items()}


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_metrics_do_not_depend_on_the_split(case: Case) -> None:
    parsed = parse_case(case)
    whole, parts = metrics_of(parsed, [[0, 1, 2, 3]]), metrics_of(parsed, [[2, 3], [0, 1]])
    assert parts == pytest.approx(whole, rel=1e-12)
    if parsed.loss not in ("cross_entropy", "dpo"):
        names = {"loss", "num_loss_tokens", "clip_fraction", "approx_kl", "ratio_mean", "ratio_max", "entropy"}
        assert names <= whole.keys()


def test_dpo_says_how_the_pairs_stand() -> None:
    case = next(parse_case(case) for case in CASES if case["config"] == {"loss": "dpo"})
    scores = torch.log_softmax(torch.tensor(case.logits), -1)
    rewards = [
        0.1
        * sum(
            float(scores[r, i, case.input_ids[r, i + 1]]) - case.columns["ref_log_probs"][r, i]
            for i in range(5)
            if case.mask[r, i]
        )
        for r in range(4)
    ]
    found = metrics_of(case, [[0, 1, 2, 3]])
    margins = [rewards[0] - rewards[1], rewards[2] - rewards[3]]
    assert found["reward_chosen"] == pytest.approx((rewards[0] + rewards[2]) / 2)
    assert found["reward_rejected"] == pytest.approx((rewards[1] + rewards[3]) / 2)
    assert found["reward_margin"] == pytest.approx(sum(margins) / 2)
    assert found["reward_accuracy"] == sum(margin > 0 for margin in margins) / 2
    assert found["num_pairs"] == 2


def test_the_loglinear_estimate_is_measured_against_the_column() -> None:
    case = next(parse_case(case) for case in CASES if case["config"].get("prox_logp_method") == "metrics")
    lp = torch.log_softmax(torch.tensor(case.logits), -1)
    errors = []
    for r, i in zip(*case.mask.nonzero(), strict=True):
        old, age = case.columns["old_log_probs"][r, i], 3 - case.columns["versions"][r, i]
        estimate = old + max((age - 1) / age if age else 0, 0) * (float(lp[r, i, case.input_ids[r, i + 1]]) - old)
        errors.append(abs(estimate - case.columns["prox_log_probs"][r, i]))
    found = metrics_of(case, [[0, 1], [2, 3]])
    assert found["prox_loglinear_error"] == pytest.approx(sum(errors) / len(errors))
    assert found["prox_loglinear_error_max"] == pytest.approx(max(errors))
