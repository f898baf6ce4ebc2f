"""Options of the losses on pairs of rows, and on rows as they are."""

from __future__ import annotations

from dataclasses import dataclass

from gradwire.server.losses.config import ColumnRules, LossConfig, one_of
from gradwire.server.losses.idle import DPO, Idle

PAIR_MEAN = "pair-mean"
DPO_TYPES = ("sigmoid", "ipo")


@dataclass(frozen=True, slots=True)
class CrossEntropyConfig(LossConfig):
    """Supervised: -log p of the row's own tokens, weighted by the mask."""


@dataclass(frozen=True, slots=True)
class DpoConfig(LossConfig):
    """Direct preference optimisation (arXiv 2305.18290): row 2k of the batch is preferred to row 2k + 1.

    `label_smoothing` is the chance that a label is wrong (conservative DPO, Mitchell 2023).
    `loss_type` "ipo" is the squared loss of arXiv 2310.12036. `reference_free` takes a uniform reference:
    the column `ref_log_probs` is then left out. `global_batch_size` counts pairs.
    """

    loss_agg_mode: str = PAIR_MEAN  # the only one
    beta: float = 0.1  # > 0
    label_smoothing: float = 0.0  # in [0, 0.5); sigmoid only
    loss_type: str = "sigmoid"  # sigmoid | ipo
    reference_free: bool = False

    def problems(self) -> list[tuple[str, str]]:
        """See LossConfig.problems."""
        found = [entry for entry in LossConfig.problems(self) if entry[0] != "loss_agg_mode"]
        if self.loss_agg_mode != PAIR_MEAN:
            found.append(("loss_agg_mode", f"is {self.loss_agg_mode!r}; dpo is a mean over pairs: leave it out"))
        if not self.beta > 0:
            found.append(("beta", f"must be > 0, is {self.beta}"))
        if not 0 <= self.label_smoothing < 0.5:
            found.append(("label_smoothing", f"must be in [0, 0.5), is {self.label_smoothing}"))
        if self.loss_type not in DPO_TYPES:
            found.append(("loss_type", one_of(self.loss_type, DPO_TYPES)))
        return found

    def idle(self) -> tuple[Idle, ...]:
        """See LossConfig.idle."""
        return (*LossConfig.idle(self), *DPO)

    def columns(self) -> ColumnRules:
        """See LossConfig.columns."""
        rules = LossConfig.columns(self)
        if self.reference_free:
            rules.refuse("ref_log_probs", "reference_free takes a uniform reference; leave this column out")
        else:
            rules.need("the loss 'dpo'", "ref_log_probs")
        return rules
