"""From a network's outputs to actions, most likely or sampled.

Formulas: a categorical is sampled by the Gumbel-max trick, argmax(logits + g) with g ~ Gumbel(0, 1) (Gumbel 1954;
Maddison et al. 2014, arXiv:1411.0030), drawn as -log(e) with e ~ Exponential(1); a squashed Gaussian is
low + (tanh(x) + 1) / 2 * (high - low) with x ~ N(mean, std) (Haarnoja et al. 2018, arXiv:1801.01290).
Knows: logits, means, masks. Does not know: networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gradwire.server.engines.policy.manifest import Head
from gradwire.server.engines.policy.spaces import Box, Discrete, Leaf, MultiBinary, MultiDiscrete

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Rng = np.random.Generator


def choose(head: Head, space: Leaf, outputs: Mapping[str, Array], mask: Mask | None, rng: Rng | None) -> Array:
    """Actions (rows, *space.shape).

    Args:
        outputs: the head's outputs, (rows, width) each.
        mask: (rows, width), True where allowed; None allows all.
        rng: draws the sample; None takes the most likely action. Heads without a distribution (deterministic, q_values)
            do the same in both cases.
    """
    return _HEADS[head](space, outputs, mask, rng)


def _categorical(space: Leaf, outputs: Mapping[str, Array], mask: Mask | None, rng: Rng | None) -> Array:
    assert isinstance(space, Discrete)
    return _from(space, _pick(outputs["logits"], mask, rng))


def _q_values(space: Leaf, outputs: Mapping[str, Array], mask: Mask | None, rng: Rng | None) -> Array:
    assert isinstance(space, Discrete)
    return _from(space, _pick(outputs["q_values"], mask, None))


def _multi_categorical(space: Leaf, outputs: Mapping[str, Array], mask: Mask | None, rng: Rng | None) -> Array:
    assert isinstance(space, MultiDiscrete)
    ends = np.cumsum(space.nvec)
    parts = [slice(end - n, end) for n, end in zip(space.nvec, ends, strict=True)]
    logits = outputs["logits"]
    choices = [_pick(logits[:, part], None if mask is None else mask[:, part], rng) for part in parts]
    return np.stack(choices, axis=1) + space.start_array


def _bernoulli(space: Leaf, outputs: Mapping[str, Array], mask: Mask | None, rng: Rng | None) -> Array:
    assert isinstance(space, MultiBinary)
    logits = outputs["logits"]
    if rng is None:
        bits = logits > 0
    else:
        # u < sigmoid(logit), as logit(u) < logit: no overflow for large logits.
        uniform = rng.random(logits.shape)
        with np.errstate(divide="ignore"):  # u = 0 has logit -inf, which is below all
            bits = np.log(uniform) - np.log1p(-uniform) < logits
    if mask is not None:
        bits = bits & mask
    return bits.reshape(-1, *space.shape).astype(np.int8)


def _squashed_gaussian(space: Leaf, outputs: Mapping[str, Array], mask: Mask | None, rng: Rng | None) -> Array:
    assert isinstance(space, Box)
    squashed = np.tanh(_gaussian(outputs, rng)).reshape(-1, *space.shape)
    low, high = space.low_array.astype(squashed.dtype), space.high_array.astype(squashed.dtype)
    return _into(space, low + 0.5 * (squashed + 1) * (high - low))


def _clipped_gaussian(space: Leaf, outputs: Mapping[str, Array], mask: Mask | None, rng: Rng | None) -> Array:
    assert isinstance(space, Box)
    return _into(space, _gaussian(outputs, rng).reshape(-1, *space.shape))


def _deterministic(space: Leaf, outputs: Mapping[str, Array], mask: Mask | None, rng: Rng | None) -> Array:
    assert isinstance(space, Box)
    return _into(space, outputs["action"].reshape(-1, *space.shape))


def _gaussian(outputs: Mapping[str, Array], rng: Rng | None) -> Array:
    mean = outputs["mean"]
    if rng is None:
        return mean
    # In float64: a large log_std is then a large number, not infinity.
    return (mean + np.exp(outputs["log_std"].astype(np.float64)) * rng.standard_normal(mean.shape)).astype(mean.dtype)


def _into(space: Box, action: Array) -> Array:
    """Clipped to the bounds, in the space's dtype."""
    clipped = np.clip(action, space.low_array, space.high_array)
    dtype = np.dtype(space.dtype)
    return (np.rint(clipped) if dtype.kind in "iu" else clipped).astype(dtype)


def _pick(scores: Array, mask: Mask | None, rng: Rng | None) -> npt.NDArray[np.int64]:
    if rng is not None:
        scores = scores - np.log(rng.standard_exponential(scores.shape))  # rng.gumbel takes twice as long
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    return scores.argmax(axis=1).astype(np.int64, copy=False)


def _from(space: Discrete, choice: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return choice + np.int64(space.start) if space.start else choice


_HEADS: dict[Head, Callable[[Leaf, Mapping[str, Array], Mask | None, Rng | None], Array]] = {
    "categorical": _categorical,
    "multi_categorical": _multi_categorical,
    "bernoulli": _bernoulli,
    "squashed_gaussian": _squashed_gaussian,
    "clipped_gaussian": _clipped_gaussian,
    "deterministic": _deterministic,
    "q_values": _q_values,
}
