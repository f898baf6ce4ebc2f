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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?`, or nothing when no known word is near."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""
