"""Options of the policy-gradient losses: ratios, clips, KL and entropy terms, and what goes with what.

Options that contradict each other, or that would have no effect (idle.py), are errors: who sets one expects it to act.
"""

from __future__ import annotations

from dataclasses import dataclass

from gradwire.server.losses.config import ColumnRules, LossConfig, one_of
from gradwire.server.losses.idle import GRPO, KL, OLD_POLICY_ONLY, ONE_BOUND, Idle
from gradwire.server.losses.names import IMPORTANCE_SAMPLING_LEVELS, KL_TYPES, PROX_METHODS


@dataclass(frozen=True, slots=True)
class PolicyLossConfig(LossConfig):
    """Options of all policy-gradient losses.

    `importance_sampling_level` "sequence" is GSPO's ratio (arXiv 2507.18071). `behav_imp_weight_cap`
    drops tokens whose behaviour weight exp(prox - old) exceeds it (decoupled PPO, arXiv 2505.24298).
    """

    importance_sampling_level: str = "token"
    behav_imp_weight_cap: float | None = None  # > 0
    use_kl_loss: bool = False
    kl_loss_coef: float = 1e-3
    kl_loss_type: str = "k3"  # k1 | k2 | k3 | abs (also kl, mse, low_var_kl)
    entropy_coeff: float = 0.0  # times the true entropy, with its gradient

    def problems(self) -> list[tuple[str, str]]:
        """See LossConfig.problems."""
        found = LossConfig.problems(self)
        if self.importance_sampling_level not in IMPORTANCE_SAMPLING_LEVELS:
            found.append(
                ("importance_sampling_level", one_of(self.importance_sampling_level, IMPORTANCE_SAMPLING_LEVELS))
            )
        if self.behav_imp_weight_cap is not None and not self.behav_imp_weight_cap > 0:
            found.append(("behav_imp_weight_cap", f"must be > 0, is {self.behav_imp_weight_cap}"))
        if self.kl_loss_type not in KL_TYPES:
            found.append(("kl_loss_type", one_of(self.kl_loss_type, tuple(KL_TYPES))))
        return found

    def idle(self) -> tuple[Idle, ...]:
        """See LossConfig.idle."""
        return (*LossConfig.idle(self), *KL)

    def columns(self) -> ColumnRules:
        """See LossConfig.columns."""
        rules = LossConfig.columns(self)
        if self.use_kl_loss:
            rules.need("use_kl_loss", "ref_log_probs")
        if self.behav_imp_weight_cap is not None:
            rules.need("behav_imp_weight_cap", "old_log_probs", "prox_log_probs")
        return rules


@dataclass(frozen=True, slots=True)
class ClippedLossConfig(PolicyLossConfig):
    """Options of losses that clip the ratio to [1 - eps_clip, 1 + eps_clip_higher]."""

    eps_clip: float = 0.2
    eps_clip_higher: float | None = None  # None: as eps_clip (DAPO's asymmetric clip, arXiv 2503.14476)

    def problems(self) -> list[tuple[str, str]]:
        """See LossConfig.problems."""
        found = PolicyLossConfig.problems(self)
        if not self.eps_clip >= 0:
            found.append(("eps_clip", f"must be >= 0, is {self.eps_clip}"))
        if self.eps_clip_higher is not None and not self.eps_clip_higher >= 0:
            found.append(("eps_clip_higher", f"must be >= 0, is {self.eps_clip_higher}"))
        return found

    @property
    def clip_bounds(self) -> tuple[float, float]:
        """Lowest and highest ratio."""
        higher = self.eps_clip if self.eps_clip_higher is None else self.eps_clip_higher
        return 1.0 - self.eps_clip, 1.0 + higher


@dataclass(frozen=True, slots=True)
class GrpoConfig(ClippedLossConfig):
    """PPO's clipped objective on group advantages (arXiv 1707.06347, 2402.03300), and its variants by flag.

    `prox_logp_method`: "recompute" takes the column `prox_log_probs` (without it, prox = old). "loglinear"
    estimates prox = old + a (lp - old), a = clip((v - 1 - u) / (v - u), 0, 1), without gradient, where v is
    `current_version` and u the column `versions`: no second forward pass. "metrics" trains as "recompute"
    and measures how far "loglinear" would be from the column.

    `m2_threshold` (M2PO, arXiv 2510.01161): of the batch's scored tokens, those with the largest
    (old - prox)^2 leave the mask until the mean of the rest is below it.
    """

    c_clip: float | None = None  # dual clip (arXiv 1912.09729): loss at most c_clip |A|; > 1
    m2_threshold: float | None = None  # > 0
    prox_logp_method: str = "recompute"  # recompute | loglinear | metrics
    current_version: int | None = None  # of the weights that train; None: the job's own. Only with versions
    use_decoupled_loss: bool = False  # demand a proximal policy; one that is there is always used
    use_sapo_loss: bool = False  # SAPO's sigmoid in place of the clip
    sapo_tau_pos: float = 1.0  # > 0, where A > 0
    sapo_tau_neg: float = 1.05  # > 0, elsewhere
    use_cispo_loss: bool = False  # CISPO's clipped weights in place of the clip
    is_weight_clip_max: float | None = None  # with CISPO: the only bound of the weights; > 0
    dp_size: int | None = None  # data-parallel workers, to be checked; the loss never depends on them

    def problems(self) -> list[tuple[str, str]]:
        """See LossConfig.problems."""
        found = ClippedLossConfig.problems(self)
        if self.c_clip is not None and not self.c_clip > 1:
            found.append(("c_clip", f"must be > 1, is {self.c_clip}"))
        for key in ("m2_threshold", "sapo_tau_pos", "sapo_tau_neg", "is_weight_clip_max"):
            value = getattr(self, key)
            if value is not None and not value > 0:
                found.append((key, f"must be > 0, is {value}"))
        if self.prox_logp_method not in PROX_METHODS:
            found.append(("prox_logp_method", one_of(self.prox_logp_method, PROX_METHODS)))
        if self.current_version is not None and self.current_version < 0:
            found.append(("current_version", f"must be >= 0, is {self.current_version}"))
        if self.dp_size is not None and self.dp_size < 1:
            found.append(("dp_size", f"must be at least 1, is {self.dp_size}"))
        return found or self._contradictions()

    def idle(self) -> tuple[Idle, ...]:
        """See LossConfig.idle."""
        return (*ClippedLossConfig.idle(self), *GRPO)

    def columns(self) -> ColumnRules:
        """See LossConfig.columns."""
        rules = ClippedLossConfig.columns(self)
        if self.use_sapo_loss:
            rules.need("use_sapo_loss", "old_log_probs")
        if self.m2_threshold is not None:
            rules.need("m2_threshold", "old_log_probs", "prox_log_probs")
        if self.prox_logp_method == "loglinear":
            rules.need("prox_logp_method 'loglinear'", "old_log_probs", "versions")
            rules.needed.pop("prox_log_probs", None)
            rules.refuse(
                "prox_log_probs", "prox_logp_method 'loglinear' estimates this column; leave it out, or use 'recompute'"
            )
        elif self.prox_logp_method == "metrics":
            rules.need("prox_logp_method 'metrics'", "old_log_probs", "prox_log_probs", "versions")
        elif self.use_decoupled_loss:
            rules.need("use_decoupled_loss", "old_log_probs", "prox_log_probs")
        return rules

    @property
    def uses_versions(self) -> bool:
        """Whether the column `versions` is read."""
        return self.prox_logp_method != "recompute"

    def _contradictions(self) -> list[tuple[str, str]]:
        found = []
        if self.use_sapo_loss and self.use_cispo_loss:
            found.append(("use_cispo_loss", "and use_sapo_loss are two losses; choose one"))
        if self.m2_threshold is not None and self.prox_logp_method == "loglinear":
            found.append(
                ("m2_threshold", "needs proximal log-probs from before the pass: use 'recompute', not 'loglinear'")
            )
        return found


@dataclass(frozen=True, slots=True)
class PpoConfig(GrpoConfig):
    """grpo under its older name."""


@dataclass(frozen=True, slots=True)
class DapoConfig(GrpoConfig):
    """grpo with DAPO's higher upper clip (arXiv 2503.14476)."""

    eps_clip_higher: float | None = 0.28


@dataclass(frozen=True, slots=True)
class GspoConfig(GrpoConfig):
    """Sequence-level ratios, clipped as narrowly as in arXiv 2507.18071."""

    importance_sampling_level: str = "sequence"
    loss_agg_mode: str = "seq-mean-token-mean"
    eps_clip: float = 3e-4
    eps_clip_higher: float | None = 4e-4


@dataclass(frozen=True, slots=True)
class CispoConfig(ClippedLossConfig):
    """Clipped weights instead of clipped updates (arXiv 2506.13585): in effect only the upper bound."""

    eps_clip: float = 1.0
    eps_clip_higher: float | None = 0.28
    is_weight_clip_max: float | None = None  # the only bound of the weights, in place of both; > 0

    def problems(self) -> list[tuple[str, str]]:
        """See LossConfig.problems."""
        found = ClippedLossConfig.problems(self)
        if self.is_weight_clip_max is not None and not self.is_weight_clip_max > 0:
            found.append(("is_weight_clip_max", f"must be > 0, is {self.is_weight_clip_max}"))
        return found

    def idle(self) -> tuple[Idle, ...]:
        """See LossConfig.idle."""
        return (*ClippedLossConfig.idle(self), *ONE_BOUND)


@dataclass(frozen=True, slots=True)
class SapoConfig(PolicyLossConfig):
    """A sigmoid in place of the clip (arXiv 2511.20347)."""

    sapo_tau_pos: float = 1.0  # > 0, where A > 0
    sapo_tau_neg: float = 1.05  # > 0, elsewhere

    def problems(self) -> list[tuple[str, str]]:
        """See LossConfig.problems."""
        found = PolicyLossConfig.problems(self)
        for key in ("sapo_tau_pos", "sapo_tau_neg"):
            if not getattr(self, key) > 0:
                found.append((key, f"must be > 0, is {getattr(self, key)}"))
        return found

    def idle(self) -> tuple[Idle, ...]:
        """See LossConfig.idle."""
        return (*PolicyLossConfig.idle(self), *OLD_POLICY_ONLY)

    def columns(self) -> ColumnRules:
        """See LossConfig.columns."""
        rules = PolicyLossConfig.columns(self)
        rules.need("the loss 'sapo'", "old_log_probs")
        return rules
