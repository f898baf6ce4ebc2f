"""Actions of every head: the most likely one, samples with the right odds, and masks that hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gradwire.server.engines.policy.heads import choose
from gradwire.server.engines.policy.spaces import Box, Discrete, MultiBinary, MultiDiscrete

ROWS = 20_000
# Five standard errors of a frequency over ROWS draws: these tests have fixed seeds, so they pass always or never.
MARGIN = 5 * 0.5 / np.sqrt(ROWS)


def many(*row: float) -> npt.NDArray[np.float32]:
    return np.tile(np.array(row, np.float32), (ROWS, 1))


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def softmax(logits: Any) -> Any:
    return np.exp(logits) / np.exp(logits).sum()


def test_categorical() -> None:
    space, logits = Discrete(n=3, start=5), many(0.0, 1.0, -1.0)
    assert set(choose("categorical", space, {"logits": logits}, None, None)) == {6}
    sampled = choose("categorical", space, {"logits": logits}, None, rng())
    assert sampled.dtype == np.int64 and sampled.shape == (ROWS,)
    frequency = np.bincount(sampled - 5, minlength=3) / ROWS
    np.testing.assert_allclose(frequency, softmax(logits[0]), atol=MARGIN)


def test_a_mask_renormalises_a_categorical() -> None:
    space, logits = Discrete(n=3), many(0.0, 5.0, -1.0)
    mask = np.tile([True, False, True], (ROWS, 1))
    assert set(choose("categorical", space, {"logits": logits}, mask, None)) == {0}
    sampled = choose("categorical", space, {"logits": logits}, mask, rng())
    frequency = np.bincount(sampled, minlength=3) / ROWS
    np.testing.assert_allclose(frequency[[0, 2]], softmax(np.array([0.0, -1.0])), atol=MARGIN)
    assert frequency[1] == 0


def test_multi_categorical() -> None:
    space, logits = MultiDiscrete(nvec=(2, 3), start=(0, 10)), many(1.0, 0.0, 0.0, 2.0, 1.0)
    likely = choose("multi_categorical", space, {"logits": logits}, None, None)
    assert likely.shape == (ROWS, 2) and likely[0].tolist() == [0, 11]
    sampled = choose("multi_categorical", space, {"logits": logits}, None, rng())
    np.testing.assert_allclose(np.bincount(sampled[:, 0], minlength=2) / ROWS, softmax(logits[0, :2]), atol=MARGIN)
    np.testing.assert_allclose(np.bincount(sampled[:, 1] - 10, minlength=3) / ROWS, softmax(logits[0, 2:]), atol=MARGIN)
    together = np.mean((sampled[:, 0] == 0) & (sampled[:, 1] == 11))
    assert abs(together - softmax(logits[0, :2])[0] * softmax(logits[0, 2:])[1]) < MARGIN, "choices are independent"
    mask = np.tile([False, True, True, False, True], (ROWS, 1))
    masked = choose("multi_categorical", space, {"logits": logits}, mask, rng())
    assert set(masked[:, 0]) == {1} and set(masked[:, 1]) == {10, 12}


def test_bernoulli() -> None:
    space, logits = MultiBinary(shape=(2, 2)), many(2.0, -1.0, 0.5, 100.0)
    likely = choose("bernoulli", space, {"logits": logits}, None, None)
    assert likely.shape == (ROWS, 2, 2) and likely.dtype == np.int8 and likely[0].tolist() == [[1, 0], [1, 1]]
    sampled = choose("bernoulli", space, {"logits": logits}, None, rng()).reshape(ROWS, 4)
    np.testing.assert_allclose(sampled.mean(axis=0), 1 / (1 + np.exp(-logits[0])), atol=MARGIN)
    mask = np.tile([False, True, True, False], (ROWS, 1))
    masked = choose("bernoulli", space, {"logits": logits}, mask, rng()).reshape(ROWS, 4)
    assert masked[:, [0, 3]].max() == 0 and masked[:, 2].max() == 1


def test_squashed_gaussian() -> None:
    space = Box(shape=(2,), low=(-2.0, 0.0), high=(2.0, 10.0))
    outputs = {"mean": many(0.5, -1.0), "log_std": many(-1.0, 0.0)}
    likely = choose("squashed_gaussian", space, outputs, None, None)
    np.testing.assert_allclose(likely[0], [2 * np.tanh(0.5), 5 + 5 * np.tanh(-1.0)], rtol=1e-6)
    sampled = choose("squashed_gaussian", space, outputs, None, rng())
    assert sampled.dtype == np.float32 and (sampled >= [-2, 0]).all() and (sampled <= [2, 10]).all()
    before = np.arctanh(np.clip((sampled.astype(np.float64) - [0, 5]) / [2, 5], -1 + 1e-9, 1 - 1e-9))
    np.testing.assert_allclose(before.mean(axis=0), [0.5, -1.0], atol=0.05)
    np.testing.assert_allclose(before.std(axis=0), np.exp([-1.0, 0.0]), rtol=0.05)


def test_clipped_gaussian() -> None:
    space = Box(shape=(1, 2), low=-1.0, high=None)
    outputs = {"mean": many(-3.0, 5.0), "log_std": many(0.0, 0.0)}
    assert choose("clipped_gaussian", space, outputs, None, None)[0].tolist() == [[-1.0, 5.0]]
    sampled = choose("clipped_gaussian", space, outputs, None, rng())
    assert sampled.shape == (ROWS, 1, 2) and sampled.min() == -1.0
    assert abs(sampled[:, 0, 1].mean() - 5.0) < 0.05


@pytest.mark.parametrize("sample", [False, True])
def test_heads_without_a_distribution(sample: bool) -> None:
    draw = rng() if sample else None
    action = choose("deterministic", Box(shape=(2,), low=0.0, high=1.0), {"action": many(0.25, 7.0)}, None, draw)
    assert action[0].tolist() == [0.25, 1.0] and (action == action[0]).all()
    whole = choose("deterministic", Box(shape=(1,), low=0, high=9, dtype="int32"), {"action": many(2.7)}, None, draw)
    assert whole.dtype == np.int32 and whole[0].tolist() == [3]
    q_values = {"q_values": many(1.0, 3.0, 2.0)}
    assert set(choose("q_values", Discrete(n=3), q_values, None, draw)) == {1}
    mask = np.tile([True, False, True], (ROWS, 1))
    assert set(choose("q_values", Discrete(n=3), q_values, mask, draw)) == {2}
