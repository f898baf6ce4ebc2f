"""Every documented method as its document prints it, on a real server, over each protocol."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

from gradwire.client import FailedPreconditionError, InvalidArgumentError
from gradwire.client.arctic import ArcticRLClient, ArcticRLWarning

# The documented batch has neither advantages nor a mask: its warnings are asserted where they matter.
pytestmark = pytest.mark.filterwarnings("ignore::gradwire.client.arctic.ArcticRLWarning")

PADDED_LEFT = torch.tensor([[0, 0, 10, 11, 12, 13], [20, 21, 22, 23, 24, 25], [0, 40, 41, 42, 43, 44]])
MASK = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]])
GRPO = {"loss_fn": "arctic_platform.rl.processors.grpo_loss", "config": {"eps_clip": 0.2}, "post": []}


async def test_a_training_step(client: ArcticRLClient) -> None:
    """Log-probs, forward and backward with the three shifted tensors, a step, and weights that moved."""
    input_ids, attention_mask = PADDED_LEFT, MASK
    response = await client.fwd_no_grad(
        batch={"args": [input_ids], "kwargs": {"attention_mask": attention_mask}}, reference_model=False
    )
    assert response["job_id"] == client.training_job_id and response["avg_loss"] is None
    old_lps = response["batch"]["logprobs"]
    assert isinstance(old_lps, torch.Tensor) and old_lps.shape == input_ids.shape and old_lps.dtype == torch.float32
    assert (old_lps[:, :-1][MASK[:, :-1].bool()] < 0).all() and (old_lps[:, -1] == 0).all()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        response = await client.fwd_bwd(
            batch={
                "args": [input_ids],
                "kwargs": {"attention_mask": attention_mask},
                "context": {
                    "old_log_probs_shifted": old_lps,
                    "prox_logp_shifted": old_lps,
                    "ref_log_probs_shifted": old_lps,
                },
            },
            processing=GRPO,
        )
    # On-policy with advantages of 1: every ratio is 1.
    assert response["avg_loss"] == pytest.approx(-1.0, abs=1e-5)
    assert response["metrics"]["num_loss_tokens"] == 12 and "batch" not in response
    assert response["metrics"]["clip_ratio"] == 0 and response["metrics"]["importance_weight"] == pytest.approx(1)
    # Scalars, though two workers computed them.
    assert all(isinstance(value, float) for value in response["metrics"].values())
    assert ["advantages" in text or "loss_mask" in text for text in response["warnings"]] == [True, True]
    texts = [str(warning.message) for warning in caught if issubclass(warning.category, ArcticRLWarning)]
    assert texts == response["warnings"]

    response = await client.step()
    metrics = response["metrics"]
    assert response["batch"] == {} and metrics["last_lr"] == 1e-3 and metrics["grad_norm"] > 0
    assert all(isinstance(value, int | float) for value in metrics.values())
    response = await client.fwd_bwd({"args": [input_ids.numpy()], "kwargs": {"attention_mask": MASK.numpy()}})
    assert response["weight_version"] >= 1
    overridden = await client.step(lr=5e-4, max_grad_norm=0.0)
    assert overridden["metrics"]["last_lr"] == 5e-4


async def test_processing_none_is_the_jobs_own_loss(client: ArcticRLClient) -> None:
    batch = {"args": [PADDED_LEFT], "kwargs": {"attention_mask": MASK}, "context": {"advantages": [2.0, 2.0, 2.0]}}
    default = await client.fwd_bwd(batch)
    named = await client.fwd_bwd(batch, processing={"loss_fn": "grpo"})
    assert default["avg_loss"] == pytest.approx(named["avg_loss"]) == pytest.approx(-2.0, abs=1e-5)
    await client.step(lr=0.0)


async def test_post_steps_return_what_they_compute(client: ArcticRLClient) -> None:
    batch: dict[str, Any] = {"args": [PADDED_LEFT.numpy(), MASK.numpy()]}
    both = await client.fwd_no_grad(batch, processing={"post": ["compute_entropy_and_logprobs"]})
    hot = await client.fwd_no_grad(
        batch, processing={"post": ["apply_temperature", "compute_logprobs"], "config": {"temperature": 4.0}}
    )
    assert set(both["batch"]) == {"logprobs", "entropy"} and set(hot["batch"]) == {"logprobs"}
    assert isinstance(both["batch"]["entropy"], np.ndarray)
    assert np.abs(both["batch"]["logprobs"] - hot["batch"]["logprobs"]).max() > 0.1
    trained = await client.fwd_bwd(
        {**batch, "meta": {"temperature": 4.0}}, processing={"post": ["apply_temperature", "compute_logprobs"]}
    )
    real = MASK.numpy()[:, :-1] > 0
    np.testing.assert_allclose(
        trained["batch"]["logprobs"][:, :-1][real], hot["batch"]["logprobs"][:, :-1][real], atol=1e-4
    )
    silent = await client.fwd_bwd(batch, processing={"post": ["identity"]})
    assert "batch" not in silent
    await client.step(lr=0.0)


async def test_padding_on_either_side_is_the_same(client: ArcticRLClient) -> None:
    right = torch.stack([torch.roll(row, -int((m == 0).sum())) for row, m in zip(PADDED_LEFT, MASK, strict=True)])
    right_mask = torch.flip(MASK, dims=[1])
    left = await client.fwd_no_grad({"args": [PADDED_LEFT, MASK]})
    other = await client.fwd_no_grad({"args": [right, right_mask]})
    for row in range(3):
        a = left["batch"]["logprobs"][row][MASK[row] > 0]
        b = other["batch"]["logprobs"][row][right_mask[row] > 0]
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


async def test_bad_calls_name_what_is_wrong(client: ArcticRLClient) -> None:
    batch = {"args": [PADDED_LEFT, MASK]}
    with pytest.raises(ValueError, match="grpo") as unknown:
        await client.fwd_bwd(batch, processing={"loss_fn": "grpoo"})
    assert isinstance(unknown.value, InvalidArgumentError)
    with pytest.raises(ValueError, match="eps_clip"):
        await client.fwd_bwd(batch, processing={"loss_fn": "grpo", "config": {"eps_clipp": 0.2}})
    with pytest.raises(ValueError, match=r"os\.system"):
        await client.fwd_bwd(batch, processing={"loss_fn": "os.system"})
    with pytest.raises(ValueError, match="input_ids has shape"):
        await client.fwd_bwd({"args": [PADDED_LEFT], "context": {"old_log_probs_shifted": torch.zeros(2, 6)}})
    with pytest.raises(ValueError, match="has no loss"):
        await client.fwd_no_grad(batch, processing={"loss_fn": "grpo"})
    with pytest.raises(ValueError, match="did you mean 'lp_params'"):
        await client.sleep_training(mode="lp_param")
    with pytest.raises(ValueError, match="it is 1"):
        await client.sleep_inference(level=3)
    with pytest.raises(ValueError, match="did you mean 'weights'"):
        await client.wake_inference(tags=["weight"])
    with pytest.raises(ValueError, match="did you mean 'max_tokens'"):
        await client.generate(["x"], {"max_token": 3})
    with pytest.raises(ValueError, match="empty text"):
        await client.generate(prompts=["fine", ""])
    with pytest.raises(TypeError, match=r"^lr is 'x' \(str\); it takes a number$"):
        await client.step("x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^checkpoint is 5 \(int\)"):
        await client.load_checkpoint(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^tags is 5 \(int\); it takes a list of"):
        await client.wake_inference(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^low_memory is 'x' \(str\); it takes True or False$"):
        await client.sync_weights(low_memory="x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prompts is empty"):
        await client.generate(prompts=[])


async def test_generate(client: ArcticRLClient) -> None:
    results = await client.generate(
        prompts=["Hello, world!", "The future of AI is", "Grüße, 世界 🌍"],
        sampling_params={"max_tokens": 20, "temperature": 0.8},
    )
    assert [type(result) for result in results] == [dict, dict, dict]
    first = results[0]
    assert first["finish_reason"] in ("length", "stop") and len(first["token_ids"]) == first["generation_len"] <= 20
    assert first["prompt_len"] == 13 and "logprobs" not in first
    assert results[2]["prompt_token_ids"] == list("Grüße, 世界 🌍".encode())

    greedy = {"max_tokens": 4, "temperature": 0, "logprobs": 2, "prompt_logprobs": 1, "top_k": -1}
    (text,) = await client.generate(["ab"], greedy)
    (ids,) = await client.generate([[97, 98]], greedy)
    assert text["token_ids"] == ids["token_ids"] and len(text["completions"]) == 1
    (many,) = await client.generate("ab", {"max_tokens": 4, "n": 3, "seed": 1})
    assert [completion["index"] for completion in many["completions"]] == [0, 1, 2]
    assert many["token_ids"] == many["completions"][0]["token_ids"]
    sampled = text["logprobs"][0][text["token_ids"][0]]
    assert sampled["rank"] == 1 and sampled["logprob"] == max(v["logprob"] for v in text["logprobs"][0].values())
    assert text["prompt_logprobs"][0] is None and 98 in text["prompt_logprobs"][1]


async def test_generate_stream(client: ArcticRLClient) -> None:
    greedy = {"max_tokens": 5, "temperature": 0}
    (whole,) = await client.generate(["ab"], greedy)
    deltas = [delta async for delta in client.generate_stream("ab", greedy)]
    assert [token for delta in deltas for token in delta["token_ids"]] == whole["token_ids"]
    async with client.generate_stream("ab", greedy) as stream:
        await stream.__anext__()
        assert (await stream.result())["text"] == whole["text"]
    async for _ in client.generate_stream("ab", {"max_tokens": 1500, "temperature": 0, "ignore_eos": True}):
        break  # ends the call: nothing is left running


async def test_log_probs(client: ArcticRLClient) -> None:
    response = await client.log_probs(prompts=["The capital of France is"], completions=["Paris"], top_k=1)
    assert response["job_id"] == client.log_prob_job_id
    (scored,) = response["results"]
    assert (scored["prompt_len"], scored["generation_len"]) == (24, 5)
    assert scored["token_ids"] == list(b"Paris") and scored["log_probs"].shape == (5,)
    places = zip(scored["logprobs"], scored["token_ids"], scored["log_probs"].tolist(), strict=True)
    assert all(place[token]["logprob"] == value for place, token, value in places)
    assert scored["prompt_logprobs"][0] is None and len(scored["prompt_logprobs"]) == 24
    # The same numbers as the pass over ids, which is on the shifted grid.
    ids = torch.tensor([scored["prompt_token_ids"] + scored["token_ids"]])
    forward = await client.fwd_no_grad(batch={"args": [ids]}, reference_model=True)
    assert forward["job_id"] == client.log_prob_job_id
    np.testing.assert_allclose(forward["batch"]["logprobs"][0, 23:-1].numpy(), scored["log_probs"], atol=1e-4)
    alone = await client.log_probs(prompts=["ab", "größer"])
    assert [result["generation_len"] for result in alone["results"]] == [0, 0]
    for top_k in (0, -1, True):
        with pytest.raises(ValueError, match="at least 1"):
            await client.log_probs(["x"], top_k=top_k)


async def test_the_reference_stays_while_the_trainer_moves(client: ArcticRLClient) -> None:
    batch = {"args": [PADDED_LEFT, MASK]}
    before = (await client.fwd_no_grad(batch, reference_model=True))["batch"]["logprobs"]
    trained = (await client.fwd_no_grad(batch))["batch"]["logprobs"]
    await client.fwd_bwd(batch)
    await client.step(lr=1e-2)
    assert torch.equal((await client.fwd_no_grad(batch, reference_model=True))["batch"]["logprobs"], before)
    assert not torch.equal((await client.fwd_no_grad(batch))["batch"]["logprobs"], trained)


async def test_sync_carries_the_weights_and_norms_prove_it(client: ArcticRLClient) -> None:
    await client.fwd_bwd({"args": [PADDED_LEFT, MASK]})
    stepped = await client.step(lr=1e-2)
    before = await client.weight_norm()
    assert before["different_tensors"] and before["training_weight_version"] == stepped["weight_version"]
    response = await client.sync_weights(cuda_ipc=False, low_memory=False)
    assert response["status"] == "ok" and response["weight_version"] == stepped["weight_version"]
    norms = await client.weight_norm()
    assert norms["training_norm"] == pytest.approx(norms["sampling_norm"], rel=1e-9)
    assert norms["training_num_params"] == norms["sampling_num_params"] and norms["different_tensors"] == []
    (result,) = await client.generate(["x"], {"max_tokens": 2}, min_weight_version=stepped["weight_version"])
    assert result["weight_version"] == stepped["weight_version"]


async def test_cuda_ipc_on_a_cpu_says_what_works(client: ArcticRLClient) -> None:
    with pytest.raises(FailedPreconditionError, match="SHARED_MEMORY") as failed:
        await client.sync_weights(cuda_ipc=True)
    assert failed.value.reason == "TRANSPORT_UNAVAILABLE"


async def test_inference_sleeps_and_wakes(client: ArcticRLClient) -> None:
    response = await client.sleep_inference(level=1)
    slept = response["sampling"]
    assert (slept["status"], slept["level"]) == ("sleeping", 1) and slept["workers"][0]["freed_bytes"] > 32 << 20
    assert (await client.sleep_inference())["sampling"]["status"] == "already_sleeping"
    with pytest.raises(FailedPreconditionError):
        await client.generate(["x"], {"max_tokens": 1})
    with pytest.raises(FailedPreconditionError):
        await client.wake_inference(tags=["kv_cache"])
    assert (await client.wake_inference(tags=["weights"]))["sampling"]["status"] == "weights_ready"
    assert (await client.wake_inference(tags=["kv_cache"]))["sampling"]["status"] == "ready"
    assert (await client.wake_inference(tags=None))["sampling"]["status"] == "already_ready"
    response = await client.reset_prefix_cache()
    assert response == {"job_id": client.sampling_job_id, "sampling": {"status": "prefix_cache_reset"}}
    await client.sleep_inference(level=2)
    await client.sync_weights()  # wakes it
    assert (await client.weight_norm())["different_tensors"] == []
    assert await client.generate(["x"], {"max_tokens": 1})


async def test_checkpoints(client: ArcticRLClient) -> None:
    response = await client.save_checkpoint()
    assert response["hf_path"].startswith(response["path"]) and response["global_step"] >= 0
    before = (await client.fwd_no_grad({"args": [PADDED_LEFT, MASK]}))["batch"]["logprobs"]
    await client.fwd_bwd({"args": [PADDED_LEFT, MASK]})
    await client.step(lr=1e-2)
    for checkpoint in (response, response["name"], response["path"]):
        loaded = await client.load_checkpoint(checkpoint)
        assert loaded["global_step"] == response["global_step"] and loaded["name"] == response["name"]
    after = (await client.fwd_no_grad({"args": [PADDED_LEFT, MASK]}))["batch"]["logprobs"]
    torch.testing.assert_close(before, after, atol=0, rtol=0)
    with pytest.raises(ValueError, match="no checkpoint has the path"):
        await client.load_checkpoint("/nowhere/at/all")
