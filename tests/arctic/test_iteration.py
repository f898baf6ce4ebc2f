"""A whole training iteration in the order that colocated trainers use; then both sides hold the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gradwire.client import FailedPreconditionError
from gradwire.client.arctic import ArcticRLClient

PROMPTS = ["1 + 1 =", "two and two make", "Ünïcode"]
GROUP = 2
PROCESSING = {
    "loss_fn": "grpo",
    "config": {"eps_clip": 0.2, "temperature": 0.9, "use_kl_loss": True},
    "post": ["apply_temperature", "compute_entropy_and_logprobs"],
}


def left_padded(rollouts: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Prompts padded on the left and responses on the right, as [B, P + R] int64, with masks."""
    rows = [(r["prompt_token_ids"], c["token_ids"]) for r in rollouts for c in r["completions"]]
    most_p, most_r = (max(len(row[part]) for row in rows) for part in (0, 1))
    ids = torch.zeros(len(rows), most_p + most_r, dtype=torch.int64)
    mask, response = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, (prompt, answer) in enumerate(rows):
        ids[row, most_p - len(prompt) : most_p] = torch.tensor(prompt)
        ids[row, most_p : most_p + len(answer)] = torch.tensor(answer)
        mask[row, most_p - len(prompt) : most_p + len(answer)] = 1
        response[row, most_p : most_p + len(answer)] = 1
    return {"input_ids": ids, "attention_mask": mask, "response_mask": response}


def advantages_of(rollouts: list[dict[str, Any]]) -> list[float]:
    """Share of the letter "e" in an answer, less its group's mean."""
    rewards = np.array([[c["text"].count("e") for c in r["completions"]] for r in rollouts], np.float32)
    rewards += np.arange(GROUP)  # never all alike
    return (rewards - rewards.mean(axis=1, keepdims=True)).reshape(-1).tolist()


async def iterate(client: ArcticRLClient) -> dict[str, Any]:
    """One iteration; what the steps found."""
    await client.wake_inference()
    await client.reset_prefix_cache()
    rollouts = await client.generate(PROMPTS, {"max_tokens": 12, "n": GROUP, "temperature": 0.9, "min_tokens": 4})
    await client.sleep_inference(level=1)
    await client.wake_training()
    batch = left_padded(rollouts)
    payload = {"batch": batch, "meta": {"temperature": 0.9, "pad_token_id": 0, "rollout_n": GROUP}}
    forward = {"post": ["apply_temperature", "compute_logprobs"]}
    old = (await client.fwd_no_grad(payload, reference_model=False, processing=forward))["batch"]["logprobs"]
    await client.wake_log_prob()
    reference = (await client.fwd_no_grad(payload, reference_model=True, processing=forward))["batch"]["logprobs"]
    rested = await client.sleep_log_prob()
    assert rested["workers"][0]["status"] == "offloaded" and rested["job_id"] == client.log_prob_job_id
    advantages = advantages_of(rollouts)
    norms = []
    half = len(advantages) // 2
    for part in (slice(0, half), slice(half, None)):
        minibatch = {
            **{name: column[part] for name, column in batch.items()},
            "advantages": advantages[part],
            "old_log_probs": old[part],
            "ref_log_prob": reference[part],
        }
        found = await client.fwd_bwd({"batch": minibatch, "meta": {"temperature": 0.9}}, PROCESSING)
        assert set(found["batch"]) == {"logprobs", "entropy"} and found["warnings"] == []
        norms.append((await client.step())["metrics"]["grad_norm"])
    await client.empty_training_cache()
    slept = await client.sleep_training(mode="non_lp")
    synced = await client.sync_weights(cuda_ipc=False)
    await client.sleep_training(mode="lp_params")
    whole = await client.sleep_training(mode="all")
    return {"norms": norms, "slept": slept, "whole": whole, "synced": synced}


@pytest.mark.filterwarnings("error::gradwire.client.arctic.ArcticRLWarning")
async def test_the_whole_iteration(client: ArcticRLClient) -> None:
    # Twice over one of them: the second begins where the first ended.
    for _ in range(2 if client.protocol == "grpc" else 1):
        found = await iterate(client)
        assert all(norm > 0 for norm in found["norms"])
        assert found["slept"]["workers"][0]["status"] == "offloaded_non_lp"
        assert found["slept"]["workers"][0]["freed_bytes"] > 0
        assert found["whole"]["workers"][0]["status"] == "already_offloaded"
    with pytest.raises(FailedPreconditionError, match="wake"):
        await client.step()
    woken = await client.wake_training()
    assert woken["workers"][0]["status"] == "on_gpu"
    assert (await client.wake_training())["workers"][0]["status"] == "already_on_gpu"
    with pytest.raises(FailedPreconditionError, match="wake"):
        await client.log_probs(["x"])
    assert (await client.sleep_log_prob())["workers"][0]["status"] == "already_offloaded"
    assert (await client.wake_log_prob())["workers"][0]["status"] == "on_gpu"
    assert (await client.wake_log_prob())["workers"][0]["status"] == "already_on_gpu"
    assert await client.log_probs(["x"])
    norms = await client.weight_norm()
    assert norms["training_norm"] == pytest.approx(norms["sampling_norm"], rel=1e-9)
    assert norms["different_tensors"] == []
    assert norms["training_weight_version"] == norms["sampling_weight_version"] == found["synced"]["weight_version"]
