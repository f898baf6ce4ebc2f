"""An option of a built-in loss changes the loss, its gradient or a metric, or it is refused by its name."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch

from gradwire.server.errors import InvalidArgument
from gradwire.server.losses import resolve_loss
from gradwire.server.losses.cases import LossCase, loss_of_parts

B, S, V = 24, 8, 4
# ppo and dapo have the options and the function of grpo.
BUILT_IN = ("grpo", "gspo", "cispo", "sapo", "importance_sampling", "cross_entropy", "dpo")
COUNTS = {"batch_num_tokens", "global_batch_size"}
"""Both may be given: the mode takes its own."""
DEMANDS = {"use_decoupled_loss", "dp_size"}
"""Change nothing, but refuse a batch or a job that is not as they say: test_checks.py, test_losses.py."""
VALUES: dict[str, tuple[Any, ...]] = {
    "temperature": (0.7,),
    "loss_agg_mode": ("seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm", "prompt-mean"),
    "batch_num_tokens": (50,),
    "global_batch_size": (64,),
    "importance_sampling_level": ("sequence", "token"),
    "behav_imp_weight_cap": (1.1,),
    "use_kl_loss": (True,),
    "kl_loss_coef": (0.3,),
    "kl_loss_type": ("k1", "k2", "abs"),
    "entropy_coeff": (0.1,),
    "eps_clip": (0.05,),
    "eps_clip_higher": (0.11,),
    "c_clip": (1.5,),
    "m2_threshold": (0.5,),
    "prox_logp_method": ("loglinear", "metrics"),
    "current_version": (9,),
    "use_decoupled_loss": (True,),
    "use_sapo_loss": (True,),
    "sapo_tau_pos": (0.5,),
    "sapo_tau_neg": (2.0,),
    "use_cispo_loss": (True,),
    "is_weight_clip_max": (1.3,),
    "dp_size": (1,),
    "beta": (0.5,),
    "label_smoothing": (0.2,),
    "loss_type": ("ipo",),
    "reference_free": (True,),
}


@cache
def random_case() -> LossCase:
    """Rows of different lengths, and policies so far apart that every bound is met on both sides."""
    rng = np.random.default_rng(7)
    real = np.arange(S) < rng.integers(2, S + 1, B)[:, None]
    mask = real & (rng.random((B, S)) < 0.8)
    mask[:, 0] = True
    mask[np.arange(B), real.sum(1) - 1] = False

    def policy() -> np.ndarray[Any, Any]:
        return -rng.exponential(1.4, (B, S))

    return LossCase(
        loss="",
        options={},
        input_ids=rng.integers(0, V, (B, S)),
        real=real,
        mask=mask.astype(np.float64),
        columns={
            "advantages": rng.normal(size=(B, 1)).repeat(S, 1),
            "old_log_probs": policy(),
            "prox_log_probs": policy(),
            "ref_log_probs": policy(),
            "versions": rng.integers(0, 4, (B, S)).astype(np.float64),
        },
        prompt_group_ids=rng.integers(0, 5, B),
        logits=rng.normal(size=(B, S, V)),
        expected_loss=0.0,
        expected_gradient=np.zeros((B, S, V)),
    )


Options = tuple[tuple[str, Any], ...]


@cache
def computed(name: str, options: Options) -> dict[str, float] | InvalidArgument:
    """Loss, gradient in some direction, and metrics; or the refusal."""
    given = dict(options)
    try:
        config = resolve_loss(name).parse(given)
    except InvalidArgument as error:
        return error
    case = random_case()
    if getattr(config, "uses_versions", False):
        given.setdefault("current_version", 3)  # the job's own
    columns = dict(case.columns)
    for column in config.columns().refused:
        del columns[column]
    case = replace(case, loss=name, options=given, columns=columns)
    logits = torch.from_numpy(case.logits.copy()).requires_grad_()
    (output,) = loss_of_parts(case, logits, [range(B)])
    (gradient,) = torch.autograd.grad(output.loss, logits)
    direction = torch.linspace(-1, 1, gradient.numel(), dtype=torch.float64).reshape(gradient.shape)
    metrics = {key: metric.result for key, metric in output.metrics.items()}
    return {"loss": float(output.loss.detach()), "slope": float((gradient * direction).sum()), **metrics}


def differ(found: dict[str, float], other: dict[str, float]) -> bool:
    """By more than rounding, or in the metrics that there are."""
    return found.keys() != other.keys() or not all(math.isclose(found[key], other[key], rel_tol=1e-9) for key in found)


def settings_of(name: str) -> list[tuple[str, Any]]:
    """Each (key, value) of a loss that is not its default."""
    loss = resolve_loss(name)
    default = loss.parse({})
    keys = [field.name for field in fields(loss.config_type)]
    return [(key, value) for key in keys for value in VALUES[key] if value != getattr(default, key)]


@pytest.mark.parametrize("name", BUILT_IN)
def test_beside_any_other_option_a_key_acts_or_is_refused_by_name(name: str) -> None:
    assert not isinstance(computed(name, ()), InvalidArgument)
    for (key, value), beside in permutations(settings_of(name), 2):
        if key == beside[0] or key in DEMANDS or {key, beside[0]} == COUNTS:
            continue
        without = computed(name, (beside,))
        if isinstance(without, InvalidArgument):
            continue  # needs the key, or is refused with it as well
        found = computed(name, tuple(sorted(((key, value), beside))))
        if isinstance(found, InvalidArgument):
            assert any(v.field in (f"loss.config.{key}", f"loss.config.{beside[0]}") for v in found.violations)
        else:
            assert differ(found, without), f"{name}: {key}={value} beside {beside} changes nothing"


@pytest.mark.parametrize("name", BUILT_IN)
def test_an_option_with_its_neutral_value_is_accepted_beside_any_other(name: str) -> None:
    loss = resolve_loss(name)
    default = loss.parse({})
    whole = {field.name: getattr(default, field.name) for field in fields(loss.config_type)}
    for key, value in settings_of(name):
        try:
            alone = loss.parse({key: value})
        except InvalidArgument:
            continue
        assert loss.parse({**whole, key: value}) == alone
    if "kl_loss_coef" in whole:
        loss.parse({"use_kl_loss": False, "kl_loss_coef": 0, "kl_loss_type": "low_var_kl"})


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("grpo", {"kl_loss_coef": 0.01}, "kl_loss_coef: has no effect without use_kl_loss"),
        ("sapo", {"kl_loss_type": "mse"}, "kl_loss_type: has no effect without use_kl_loss"),
        ("grpo", {"global_batch_size": 8}, "global_batch_size: has no effect with loss_agg_mode 'token-mean'"),
        ("gspo", {"batch_num_tokens": 8}, "batch_num_tokens: has no effect but with loss_agg_mode 'token-mean'"),
        ("grpo", {"current_version": 3}, "current_version: has no effect with prox_logp_method 'recompute'"),
        ("grpo", {"use_sapo_loss": True, "eps_clip_higher": 0.3}, "eps_clip_higher: has no effect with use_sapo_loss"),
        ("cispo", {"is_weight_clip_max": 2, "eps_clip": 0.3}, "eps_clip: has no effect with is_weight_clip_max"),
        ("sapo", {"behav_imp_weight_cap": 2}, "behav_imp_weight_cap: has no effect"),
    ],
)
def test_what_has_no_effect_is_told_with_the_reason(name: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        resolve_loss(name).parse(options)
    assert f"loss.config.{says}" in caught.value.message


@pytest.mark.parametrize("mode", VALUES["loss_agg_mode"] + ("token-mean",))
def test_both_counts_of_a_large_batch_may_be_given_with_any_mode(mode: str) -> None:
    resolve_loss("grpo").parse({"loss_agg_mode": mode, "batch_num_tokens": 90, "global_batch_size": 8})
