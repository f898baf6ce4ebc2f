"""Which options act only beside others: a table of when one can change neither the loss nor a metric.

Such an option is an error by its name: who sets one expects it to act. Its neutral value (its default, none, or a
coefficient of 0) is accepted always, since callers pass on whole configurations. Knows no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gradwire.server.losses.names import KL_TYPES


@dataclass(frozen=True, slots=True)
class Idle:
    """`keys` have no effect where `when` is true of the configuration; `why` follows the key in the error."""

    keys: tuple[str, ...]
    when: Callable[[Any], bool]
    why: str


# A caller may give both counts of the large batch, whatever the mode: it takes its own. One alone that the mode does
# not divide by was meant to act.
COUNTS = (
    Idle(
        ("global_batch_size",),
        lambda c: c.loss_agg_mode == "token-mean" and c.batch_num_tokens is None,
        "has no effect with loss_agg_mode 'token-mean', which divides by batch_num_tokens",
    ),
    Idle(
        ("batch_num_tokens",),
        lambda c: c.loss_agg_mode != "token-mean" and c.global_batch_size is None,
        "has no effect but with loss_agg_mode 'token-mean'; other modes divide by global_batch_size",
    ),
)
KL = (Idle(("kl_loss_coef", "kl_loss_type"), lambda c: not c.use_kl_loss, "has no effect without use_kl_loss"),)
ONE_BOUND = (
    Idle(
        ("eps_clip", "eps_clip_higher"),
        lambda c: c.is_weight_clip_max is not None,
        "has no effect with is_weight_clip_max, which is the only bound of the weights",
    ),
)
OLD_POLICY_ONLY = (
    Idle(("behav_imp_weight_cap",), lambda c: True, "has no effect: the ratio is against the old policy itself"),
)
GRPO = (
    *ONE_BOUND,
    Idle(
        ("eps_clip", "eps_clip_higher"),
        lambda c: c.use_sapo_loss,
        "has no effect with use_sapo_loss, which has a sigmoid in place of the clip",
    ),
    Idle(
        ("use_decoupled_loss", "behav_imp_weight_cap", "m2_threshold", "prox_logp_method"),
        lambda c: c.use_sapo_loss,
        "has no meaning with use_sapo_loss, whose ratio is against the old policy",
    ),
    Idle(("sapo_tau_pos", "sapo_tau_neg"), lambda c: not c.use_sapo_loss, "has no effect without use_sapo_loss"),
    Idle(
        ("c_clip",),
        lambda c: c.use_sapo_loss or c.use_cispo_loss,
        "has no meaning with use_sapo_loss or use_cispo_loss, which do not clip the loss",
    ),
    Idle(("is_weight_clip_max",), lambda c: not c.use_cispo_loss, "has no effect without use_cispo_loss"),
    Idle(
        ("current_version",),
        lambda c: not c.uses_versions,
        "has no effect with prox_logp_method 'recompute', which reads no versions",
    ),
)
DPO = (Idle(("label_smoothing",), lambda c: c.loss_type == "ipo", "has no meaning with loss_type 'ipo'"),)


def idle_options(config: Any, table: Iterable[Idle]) -> list[tuple[str, str]]:
    """(key, why it has no effect) of each option that is set and cannot act."""
    plain = type(config)()
    found: dict[str, str] = {}
    for rule in table:
        if rule.when(config):
            for key in rule.keys:
                if not _neutral(key, getattr(config, key), getattr(plain, key)):
                    found.setdefault(key, rule.why)
    return list(found.items())


def _neutral(key: str, value: Any, default: Any) -> bool:
    """Whether a value asks for nothing."""
    if key == "kl_loss_type":
        return bool(KL_TYPES[value] == KL_TYPES[default])
    return value is None or value == default or (key == "kl_loss_coef" and value == 0)
