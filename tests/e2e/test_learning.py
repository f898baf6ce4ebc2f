"""Learning, over the wire: sample, reward, grpo, step, sync; the reward rises from chance to nearly all.

The reward of a completion is the share of one chosen byte in it. Nothing but the loss says which byte it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from gradwire.client import Client, Completion, Job
from tests.e2e.conftest import TrainerFactory
from tests.originals import sync_originals

PROMPTS = ["to be or n", "not to be!", "that is th", "e question"]
SAMPLES = 16  # of each prompt
TOKENS = 8  # of each completion
MOST_STEPS = 30  # 4 to 8 are what it takes, twice that with an adapter
GOAL = 0.9


@dataclass(frozen=True)
class Variant:
    """A way to train that must not matter. The first call is split into `micro_batches` at least, or into one.

    Later calls may need fewer: completions come to be alike, and what they share is computed once.
    """

    seed: int
    micro_batches: int
    config: dict[str, Any] = field(default_factory=dict)
    learning_rate: float = 1e-2

    def __str__(self) -> str:
        options = "-".join(f"{key}={value}" for key, value in self.config.items())
        return f"seed={self.seed}-{self.micro_batches}-micro-batches-{options}"


LORA = {"rank": 4, "alpha": 16}
PACKED = {"packing": True, "max_tokens_per_micro_batch": 4096}
PADDED = {"packing": False, "max_tokens_per_micro_batch": 4096}
VARIANTS = [
    Variant(0, 1, PACKED),
    Variant(1, 4, {**PACKED, "max_tokens_per_micro_batch": 90}),
    Variant(2, 1, PADDED),
    # 16 rows of 17 tokens each (the last token of a row is only predicted).
    Variant(0, 4, {**PADDED, "max_tokens_per_micro_batch": 272}),
    *(
        Variant(v.seed, v.micro_batches, {**v.config, "lora": LORA})
        for v in (
            Variant(0, 1, PADDED),
            Variant(1, 1, PACKED),
            Variant(2, 4, {**PADDED, "max_tokens_per_micro_batch": 272}),
            Variant(0, 4, {**PACKED, "max_tokens_per_micro_batch": 90}),
        )
    ),
]


@pytest.fixture(scope="module", autouse=True)
def originals_afterwards(client: Client) -> Iterator[None]:
    """Leaves the shared sampler as it was. Each test puts the original weights into it before it begins."""
    yield
    fresh = client.jobs.create(training={"threads": 1}).training
    assert fresh is not None
    sync_originals(client, fresh)
    client.jobs.destroy(fresh)


@pytest.fixture(scope="module")
def slots(client: Client) -> Iterator[Job]:
    """A second sampler, with a slot for an adapter."""
    settings = {"max_loras": 1, "max_lora_rank": 4, "dtype": "float32", "kv_cache_bytes": 64 << 20}
    job = client.jobs.create(sampling=settings).sampling
    assert job is not None
    yield job
    client.jobs.destroy(job)


def rewards_of(completions: tuple[Completion, ...], byte: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """[prompts, samples]: the byte's share in each completion."""
    shares = [float((completion.token_ids == byte).mean()) for completion in completions]
    return np.array(shares).reshape(len(PROMPTS), SAMPLES)


def grpo_batch(completions: tuple[Completion, ...], rewards: Any) -> dict[str, Any]:
    """Rows of prompt and completion; advantages within each prompt's group (arXiv 2402.03300)."""
    centred = rewards - rewards.mean(axis=1, keepdims=True)
    advantages = (centred / (rewards.std(axis=1, keepdims=True) + 1e-4)).reshape(-1)
    prompts = [list(prompt.encode()) for prompt in PROMPTS for _ in range(SAMPLES)]
    rows, masks = [], []
    for prompt, completion in zip(prompts, completions, strict=True):
        rows.append([*prompt, *completion.token_ids.tolist()])
        mask = np.zeros(len(rows[-1]))
        mask[len(prompt) - 1 : -1] = 1  # entry i scores token i + 1
        masks.append(mask)
    return {"input_ids": rows, "loss_mask": masks, "advantages": advantages}


def learn(client: Client, trainer: Job, sampler: Job | None, variant: Variant, byte: int) -> list[float]:
    """Trains until the goal is reached, or too long; the reward of each round of samples."""
    curve: list[float] = []
    for step in range(MOST_STEPS + 1):
        sampled = client.sampling.generate(
            [list(prompt.encode()) for prompt in PROMPTS],
            n=SAMPLES,
            max_tokens=TOKENS,
            ignore_eos=True,
            job=sampler,
            seed=1000 * variant.seed + step,
            min_weight_version=client.weights.get_version(trainer).weight_version,
        ).completions
        rewards = rewards_of(sampled, byte)
        curve.append(float(rewards.mean()))
        if curve[-1] > GOAL:
            break
        result = client.training.fwd_bwd(trainer, grpo_batch(sampled, rewards), loss="grpo")
        assert step or result.num_micro_batches >= variant.micro_batches
        assert result.num_micro_batches == 1 or variant.micro_batches > 1
        assert result.metrics["ratio_mean"] == 1  # on-policy
        client.training.step(trainer)
        client.weights.sync(trainer, sampler)
    return curve


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_grpo_raises_a_reward_from_chance_to_nearly_all(
    client: Client, make_trainer: TrainerFactory, variant: Variant, request: pytest.FixtureRequest
) -> None:
    trainer = make_trainer(
        optimizer={"name": "adamw", "learning_rate": variant.learning_rate}, max_grad_norm=1.0, **variant.config
    )
    sampler = None
    if "lora" in variant.config:
        sampler = request.getfixturevalue("slots")
        client.weights.sync(trainer, sampler)  # an adapter that changes nothing yet
    else:
        sync_originals(client, trainer)
    curve = learn(client, trainer, sampler, variant, ord("a") + variant.seed)
    assert curve[0] < 0.1, curve
    assert curve[-1] > GOAL, curve
