"""The words that configurations use, and the nearest known one to a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

AGGREGATION_MODES = (
    "token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
    "prompt-mean",
)
PROX_METHODS = ("recompute", "loglinear", "metrics")
IMPORTANCE_SAMPLING_LEVELS = ("token", "sequence")
KL_TYPES = {
    "k1": "k1",
    "k2": "k2",
    "k3": "k3",
    "abs": "abs",
    # Names that other trainers use for the same estimators.
    "kl": "k1",
    "mse": "k2",
    "low_var_kl": "k3",
}

COLUMNS = {
    "advantages": "advantages",
    "old_log_probs_shifted": "old_log_probs",
    "prox_logp_shifted": "prox_log_probs",
    "ref_log_probs_shifted": "ref_log_probs",
    "versions": "versions",
}
"""Name of a column in a request -> in LossInputs."""

_ELSEWHERE = {
    "epsilon": "eps_clip",
    "epsilon_high": "eps_clip_higher",
    "clip_ratio": "eps_clip",
    "clip_ratio_high": "eps_clip_higher",
    "beta": "kl_loss_coef",
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "fp32": "float32",
}
"""Names that others use for the same options and values."""
_NEAR = 0.5


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?`, or nothing when no known word is near. Equal parts in another order are nearest.

    Large and small letters are alike.
    """
    choices = list(known)
    meant = _ELSEWHERE.get(word.lower())
    if meant not in choices:
        meant = max(choices, key=lambda choice: (_likeness(word, choice), choice), default=None)
        if meant is None or _likeness(word, meant) < _NEAR:
            return ""
    return f" Did you mean {meant!r}?"


def column_name(name: str) -> str:
    """A column's name in LossInputs, from that or from a request's. Raises ValueError with the nearest known name."""
    known = [*COLUMNS.values(), "prompt_group_ids"]
    found = COLUMNS.get(name, name)
    if found not in known:
        raise ValueError(f"{name!r} is no column.{did_you_mean(str(name), known)} Columns: {', '.join(known)}")
    return found


def _likeness(word: str, choice: str) -> float:
    """0 to 1: of the words as they stand, or with their parts in order, whichever are more alike."""
    word, choice = word.lower(), choice.lower()
    pairs = ((choice, word), ("_".join(sorted(choice.split("_"))), "_".join(sorted(word.split("_")))))
    return max(difflib.SequenceMatcher(None, *pair).ratio() for pair in pairs)
