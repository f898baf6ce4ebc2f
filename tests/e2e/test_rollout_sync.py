"""Weights that change in the middle of a rollout: every recorded token says which ones sampled it."""

from __future__ import annotations

from typing import Any

import numpy as np
import openai

from gradwire.client import Client, Job
from gradwire.client.agentic.recorded import trajectory_of
from tests.e2e.conftest import TrainerFactory


def newer(client: Client, trainer: Job) -> tuple[int, int]:
    """Trains until the trainer's weights are newer than the sampler's; versions of these and of those."""
    while client.weights.get_version(trainer).weight_version <= client.weights.get_version().weight_version:
        client.training.fwd_bwd(trainer, {"input_ids": [[1, 2, 3]]}, loss="cross_entropy")
        client.training.step(trainer)
    return client.weights.get_version().weight_version, client.weights.get_version(trainer).weight_version


def test_a_rollout_over_a_sync_says_which_weights_sampled_what(client: Client, make_trainer: TrainerFactory) -> None:
    trainer = make_trainer(dtype="float32")
    old, new = newer(client, trainer)
    with (
        client.rollouts.open() as rollout,
        openai.OpenAI(base_url=rollout.base_url, api_key="-", max_retries=0) as agent,
    ):
        tokens = list(b"hello")
        more: Any = {"return_token_ids": True, "ignore_eos": True}
        lines = iter(agent.completions.create(model="m", prompt=tokens, max_tokens=1500, stream=True, extra_body=more))
        sampled: list[int] = []
        while len(sampled) <= 20:
            sampled += next(lines).choices[0].token_ids or []  # type: ignore[attr-defined]
        client.weights.sync(trainer, in_flight="keep")
        for line in lines:
            sampled += line.choices[0].token_ids or []  # type: ignore[attr-defined]
        tokens += [*sampled, *b" next "]
        agent.completions.create(model="m", prompt=tokens, max_tokens=5, extra_body=more)
    (found,) = client.rollouts.collect(rollout.rollout_id)
    client.rollouts.discard(rollout.rollout_id)

    (row,) = found.rows
    across, after = row.turns
    assert row.token_ids[across.start : across.end].tolist() == sampled
    assert [span.version for span in across.weight_spans] == [old, new]
    assert (across.weight_spans[0].start, across.weight_spans[-1].end) == (0, len(sampled))
    assert [(span.version, span.start, span.end) for span in after.weight_spans] == [(new, 0, 5)]

    border = across.weight_spans[1].start
    trajectory = trajectory_of(found)
    assert trajectory.response_versions is not None
    versions = trajectory.response_versions[trajectory.response_masks == 1].tolist()
    assert versions == [old] * border + [new] * (len(sampled) - border + 5)
    # The trainer holds the new weights: what they sampled after the change, over a prompt that they read anew, has
    # the trainer's log-probs.
    (log_probs,) = client.training.fwd_no_grad(trainer, {"input_ids": [row.token_ids]}).log_probs_shifted
    np.testing.assert_allclose(
        log_probs[after.start - 1 : after.end - 1], row.log_probs[after.start : after.end], atol=1e-3
    )
