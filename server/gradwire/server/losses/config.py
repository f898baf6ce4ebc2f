"""What each loss can be told: frozen dataclasses, filled strictly from a request's mapping.

An unknown key is an error that names the nearest known key: a misspelt option that is silently
ignored trains the wrong objective for a week. Knows no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from gradwire.server.errors import FieldViolation, InvalidArgument
from gradwire.server.losses.names import AGGREGATION_MODES, IMPORTANCE_SAMPLING_LEVELS, KL_TYPES, did_you_mean


@dataclass(frozen=True, slots=True)
class LossConfig:
    """Options that every loss has.

    `batch_num_tokens` and `global_batch_size` replace the two denominators that are otherwise counted in
    the batch of the call (sum of the mask; rows that have any token). Gradients of several calls add up, so
    a caller who splits one large batch over k calls gives each call the large batch's counts, and the sum
    is then exactly the large batch's gradient.
    """

    temperature: float = 1.0  # log-probs are those of softmax(logits / temperature); > 0
    loss_agg_mode: str = "token-mean"
    batch_num_tokens: int | None = None  # denominator of token-mean; None: sum of this call's mask
    global_batch_size: int | None = None  # denominator of seq-mean-*; None: this call's rows with any token

    def problems(self) -> list[tuple[str, str]]:
        """(key, what would be right) of each value out of range."""
        found = []
        if not self.temperature > 0:
            found.append(("temperature", f"must be > 0, is {self.temperature}"))
        if self.loss_agg_mode not in AGGREGATION_MODES:
            found.append(("loss_agg_mode", one_of(self.loss_agg_mode, AGGREGATION_MODES)))
        for key in ("batch_num_tokens", "global_batch_size"):
            value = getattr(self, key)
            if value is not None and value < 1:
                found.append((key, f"must be at least 1, is {value}"))
        return found


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
    """PPO's clipped objective on group advantages (arXiv 1707.06347, 2402.03300)."""

    c_clip: float | None = None  # dual clip (arXiv 1912.09729): loss at most c_clip |A|; > 1

    def problems(self) -> list[tuple[str, str]]:
        """See LossConfig.problems."""
        found = ClippedLossConfig.problems(self)
        if self.c_clip is not None and not self.c_clip > 1:
            found.append(("c_clip", f"must be > 1, is {self.c_clip}"))
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


@dataclass(frozen=True, slots=True)
class CrossEntropyConfig(LossConfig):
    """Supervised: -log p of the row's own tokens, weighted by the mask."""


AnyConfig = TypeVar("AnyConfig", bound=LossConfig)


def parse_config(kind: type[AnyConfig], values: Mapping[str, Any], *, path: str) -> AnyConfig:
    """A configuration from a mapping of JSON-like values.

    Raises InvalidArgument with one violation for each key that is unknown, of a wrong type or out of range.
    """
    types = {f.name: str(f.type) for f in fields(kind)}
    bad: list[FieldViolation] = []
    given: dict[str, Any] = {}
    for key, value in values.items():
        where = f"{path}.{key}"
        if key not in types:
            known = ", ".join(sorted(types))
            bad.append(FieldViolation(where, f"unknown key.{did_you_mean(key, types)} Known keys: {known}"))
            continue
        try:
            given[key] = _coerce(value, types[key])
        except ValueError as error:
            bad.append(FieldViolation(where, str(error)))
    if bad:
        raise InvalidArgument(bad, reason="LOSS_CONFIG_INVALID")
    config = kind(**given)
    if problems := config.problems():
        violations = [FieldViolation(f"{path}.{key}", text) for key, text in problems]
        raise InvalidArgument(violations, reason="LOSS_CONFIG_INVALID")
    return config


def one_of(value: str, known: tuple[str, ...]) -> str:
    """The sentence for a word that is none of the known ones."""
    return f"{value!r} is none of {', '.join(known)}.{did_you_mean(value, known)}"


def _coerce(value: Any, annotation: str) -> Any:
    optional = annotation.endswith("| None")
    kind = annotation.removesuffix("| None").strip()
    if value is None:
        if optional:
            return None
        raise ValueError(f"may not be null; give a {kind}")
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "str" and isinstance(value, str):
        return value
    if kind in ("int", "float") and isinstance(value, (int, float)) and not isinstance(value, bool):
        return _number(value, whole=kind == "int")
    raise ValueError(f"must be a {kind}, is the {type(value).__name__} {value!r}")


def _number(value: int | float, *, whole: bool) -> int | float:
    if not math.isfinite(value):
        raise ValueError(f"must be finite, is {value}")
    if not whole:
        return float(value)
    # Numbers come as doubles from a protobuf Struct, so 4096.0 is the integer 4096.
    if value != int(value):
        raise ValueError(f"must be a whole number, is {value}")
    return int(value)
