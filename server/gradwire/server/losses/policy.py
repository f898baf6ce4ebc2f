"""Policy-gradient losses: the grpo family, importance sampling, CISPO and SAPO.

Each function gives a loss per token; what they share (ratio, behaviour weight, KL and entropy terms,
aggregation, metrics) stands once below. Signs: losses are minimised, so advantages enter with a minus.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradwire.server.losses.aggregate import token_weights
from gradwire.server.losses.family import CispoConfig, GrpoConfig, PolicyLossConfig, SapoConfig
from gradwire.server.losses.inputs import LossInputs, LossOutput
from gradwire.server.losses.kl import kl_per_token
from gradwire.server.losses.metrics import Metric, Reduction
from gradwire.server.losses.normalizer import LossNormalizer


@dataclass(frozen=True, slots=True)
class Ratio:
    """Per token [N]: log of the ratio, the ratio, the advantage, the behaviour weight."""

    log: Tensor
    value: Tensor
    advantages: Tensor
    behaviour: Tensor | None  # None: all ones
    estimate_error: Tensor | None = None  # |log-linear estimate - prox|, where both are known


def grpo(inputs: LossInputs, config: GrpoConfig, whole: LossNormalizer) -> LossOutput:
    """max(-A r, -A clip(r)), at most c_clip |A| (arXiv 1707.06347, 2402.03300, 1912.09729), times w.

    `use_sapo_loss` and `use_cispo_loss` put those losses in its place.
    """
    if config.use_sapo_loss:
        return sapo(inputs, config, whole)
    if config.use_cispo_loss:
        return cispo(inputs, config, whole)
    ratio = _ratio(inputs, config)
    low, high = config.clip_bounds
    unclipped = -ratio.advantages * ratio.value
    clipped = -ratio.advantages * ratio.value.clamp(low, high)
    losses = torch.maximum(unclipped, clipped)
    if config.c_clip is not None:
        losses = torch.minimum(losses, config.c_clip * ratio.advantages.abs())
    return _finish(inputs, config, whole, ratio, losses, is_clipped=clipped > unclipped)


def importance_sampling(inputs: LossInputs, config: PolicyLossConfig, whole: LossNormalizer) -> LossOutput:
    """-A r, times w."""
    ratio = _ratio(inputs, config)
    losses = -ratio.advantages * ratio.value
    return _finish(inputs, config, whole, ratio, losses, is_clipped=torch.zeros_like(losses, dtype=torch.bool))


def cispo(inputs: LossInputs, config: CispoConfig | GrpoConfig, whole: LossNormalizer) -> LossOutput:
    """-stop_gradient(clip(r)) A lp (arXiv 2506.13585), times w."""
    ratio = _ratio(inputs, config)
    low, high = config.clip_bounds
    if config.is_weight_clip_max is not None:
        low, high = 0.0, config.is_weight_clip_max
    weights = ratio.value.detach().clamp(low, high)
    losses = -weights * ratio.advantages * inputs.log_probs
    return _finish(inputs, config, whole, ratio, losses, is_clipped=weights != ratio.value.detach())


def sapo(inputs: LossInputs, config: SapoConfig | GrpoConfig, whole: LossNormalizer) -> LossOutput:
    """-(4 / tau) sigmoid(tau (r - 1)) A, tau by the sign of A (arXiv 2511.20347).

    The ratio is against the policy that sampled: `prox_log_probs` is not used.
    """
    ratio = _ratio(inputs, config, against_old=True)
    # Two tensors and not two numbers: `where` of bare numbers would round them to float32.
    pos, neg = (torch.full_like(ratio.value, tau) for tau in (config.sapo_tau_pos, config.sapo_tau_neg))
    tau = torch.where(ratio.advantages > 0, pos, neg)
    losses = -(4 / tau) * torch.sigmoid(tau * (ratio.value - 1)) * ratio.advantages
    return _finish(inputs, config, whole, ratio, losses, is_clipped=torch.zeros_like(losses, dtype=torch.bool))


def _ratio(inputs: LossInputs, config: PolicyLossConfig, *, against_old: bool = False) -> Ratio:
    """r = exp(lp - prox) and w = exp(prox - old).

    Without prox, prox is old. Without old too, the batch is taken as on-policy: the ratio is 1 and only
    its gradient counts.
    """
    lp = inputs.log_probs
    old = inputs.old_log_probs
    prox, estimate_error = (None, None) if against_old else _proximal(inputs, config)
    anchor = old if prox is None else prox
    log_ratio = lp - (lp.detach() if anchor is None else anchor)
    assert inputs.advantages is not None  # the registry's required columns were checked
    advantages = inputs.advantages
    if config.importance_sampling_level == "sequence":
        log_ratio, advantages = inputs.row_mean(log_ratio), inputs.row_mean(advantages)
    behaviour = None
    if prox is not None and old is not None:
        behaviour = (prox - old).exp()
        if config.behav_imp_weight_cap is not None:
            behaviour = torch.where(behaviour > config.behav_imp_weight_cap, 0, behaviour)
    return Ratio(log_ratio, log_ratio.exp(), advantages, behaviour, estimate_error)


def _proximal(inputs: LossInputs, config: PolicyLossConfig) -> tuple[Tensor | None, Tensor | None]:
    """Log-probs of the proximal policy, None where it is the old one; and how far the estimate is from them."""
    prox = inputs.prox_log_probs
    if not isinstance(config, GrpoConfig) or not config.uses_versions:
        return prox, None
    estimate = _log_linear(inputs, config)
    if prox is None:
        return estimate, None
    return prox, (estimate - prox).abs()


def _log_linear(inputs: LossInputs, config: GrpoConfig) -> Tensor:
    """old + a (lp - old), a = clip((v - 1 - u) / (v - u), 0, 1): the policy one version before the current v,
    on the straight line from the policy of version u that sampled. A constant: no gradient.
    """
    old, versions = inputs.old_log_probs, inputs.versions
    assert old is not None and versions is not None  # columns that the configuration needs
    assert config.current_version is not None  # set by whoever knows the weights' version
    age = config.current_version - versions
    part = torch.where(age > 0, (age - 1) / age.clamp_min(1), torch.zeros_like(age)).clamp(0, 1)
    return old + part * (inputs.log_probs.detach() - old)


def _finish(
    inputs: LossInputs,
    config: PolicyLossConfig,
    whole: LossNormalizer,
    ratio: Ratio,
    losses: Tensor,
    *,
    is_clipped: Tensor,
) -> LossOutput:
    if ratio.behaviour is not None:
        losses = losses * ratio.behaviour
    metrics = _metrics(inputs, ratio, is_clipped)
    if config.use_kl_loss:
        assert inputs.ref_log_probs is not None  # checked with the batch: use_kl_loss needs the column
        kl = kl_per_token(inputs.log_probs, inputs.ref_log_probs, config.kl_loss_type)
        losses = losses + config.kl_loss_coef * kl
        metrics["kl"] = _mean(kl, inputs.mask)
    if config.entropy_coeff:
        losses = losses - config.entropy_coeff * inputs.entropy
    loss = (token_weights(inputs, config, whole) * losses).sum()
    metrics["loss"] = Metric(Reduction.SUM, float(loss.detach()))
    return LossOutput(loss, metrics)


def _metrics(inputs: LossInputs, ratio: Ratio, is_clipped: Tensor) -> dict[str, Metric]:
    value, mask = ratio.value.detach(), inputs.mask
    log = ratio.log.detach()
    metrics = {
        "num_loss_tokens": Metric(Reduction.SUM, float(mask.numel())),
        "clip_fraction": _mean(is_clipped.to(mask.dtype), mask),
        # k3 of KL(policy that the ratio is against || policy): never negative.
        "approx_kl": _mean(torch.expm1(log) - log, mask),
        "ratio_mean": _mean(value, mask),
        "ratio_max": Metric(Reduction.MAX, float(value.max())),
        "entropy": _mean(inputs.entropy, mask),
    }
    if ratio.estimate_error is not None:
        metrics["prox_loglinear_error"] = _mean(ratio.estimate_error, mask)
        metrics["prox_loglinear_error_max"] = Metric(Reduction.MAX, float(ratio.estimate_error.max()))
    return metrics


def _mean(values: Tensor, mask: Tensor) -> Metric:
    return Metric(Reduction.MEAN, float((values.detach() * mask).sum()), float(mask.sum()))
