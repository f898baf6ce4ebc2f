"""The document's batches and processing descriptors, taken apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gradwire.client.arctic.batch import decode_batch
from gradwire.client.arctic.processing import decode_processing, loss_call

IDS = np.arange(1, 13).reshape(2, 6)
MASK = np.array([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
GRID = np.zeros((2, 6), np.float32)


def test_the_documented_form() -> None:
    context: dict[str, object] = dict.fromkeys(
        ("old_log_probs_shifted", "prox_logp_shifted", "ref_log_probs_shifted"), GRID
    )
    decoded = decode_batch({"args": [IDS], "kwargs": {"attention_mask": MASK}, "context": context | {"versions": None}})
    assert set(decoded.columns) == {"input_ids", "attention_mask", *context}
    assert decoded.columns["input_ids"] is IDS and decoded.warnings == []


def test_positional_mask_and_positions_that_agree() -> None:
    positions = np.array([[9, 9, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5]])
    decoded = decode_batch({"args": (IDS, MASK, positions), "kwargs": {"use_cache": True}})
    assert set(decoded.columns) == {"input_ids", "attention_mask"}
    assert decoded.warnings == ["batch.kwargs.use_cache has no effect: a pass returns log-probs and entropies"]
    with pytest.raises(ValueError, match="these say otherwise"):
        decode_batch({"args": [IDS, MASK, positions + 1]})


def test_the_payload_form() -> None:
    decoded = decode_batch(
        {
            "batch": {
                "input_ids": IDS, "attention_mask": MASK, "prompts": IDS[:, :4], "responses": IDS[:, 4:],
                "response_mask": np.array([[1, 0], [1, 1]]), "old_log_probs": GRID, "ref_log_prob": None,
            },
            "meta": {"temperature": 0.5, "pad_token_id": 0, "rollout_n": 4, "batch_num_tokens": 9, "actor_config": {}},
            "processing": {"post": ["apply_temperature", "compute_logprobs"]},
        }
    )  # fmt: skip
    # Tokens 4 and 5 are the response; they are predicted at entries 3 and 4.
    assert decoded.columns.pop("loss_mask").tolist() == [[0, 0, 0, 1, 0, 0], [0, 0, 0, 1, 1, 0]]
    assert set(decoded.columns) == {"input_ids", "attention_mask", "old_log_probs_shifted"}
    call = decode_processing(None, decoded, None)
    assert (call.temperature, call.log_probs, call.entropy) == (0.5, True, False)
    assert loss_call(call, decoded) == (None, {"batch_num_tokens": 9, "temperature": 0.5})


def test_a_response_mask_of_full_width_moves_one_entry_to_the_left() -> None:
    mask = np.array([[0, 0, 0, 1, 1, 1], [0, 1, 1, 0, 0, 0]])
    decoded = decode_batch({"batch": {"input_ids": IDS, "response_mask": mask}})
    assert decoded.columns["loss_mask"].tolist() == [[0, 0, 1, 1, 1, 0], [1, 1, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ([IDS], "it is a dict"),
        ({"arg": [IDS]}, "did you mean 'args'"),
        ({"kwargs": {"attention_mask": MASK}}, "has no input_ids"),
        ({"args": [IDS], "kwargs": {"attention_masks": MASK}}, "did you mean 'attention_mask'"),
        ({"args": [IDS], "kwargs": {"input_ids": IDS}}, "in args and in kwargs"),
        ({"args": [IDS, MASK, MASK, MASK]}, "at most 3"),
        ({"args": [IDS], "context": {"old_log_probs": GRID}}, "did you mean 'old_log_probs_shifted'"),
        ({"args": [IDS], "batch": {}}, "a form of its own"),
        ({"batch": {"input_ids": IDS, "advantage": GRID}}, "did you mean 'advantages'"),
        ({"batch": {"input_ids": IDS, "old_log_probs": GRID, "old_log_probs_shifted": GRID}}, "two names"),
        ({"batch": {"input_ids": IDS, "prompts": IDS, "responses": IDS}}, "6 and 6 wide"),
        ({"args": [IDS], "meta": {"temperatur": 1}}, "did you mean 'temperature'"),
    ],
)
def test_bad_batches(batch: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decode_batch(batch)


@pytest.mark.parametrize(
    ("processing", "words"),
    [
        ("grpo", "it is a dict"),
        ({"loss": "grpo"}, "did you mean 'loss_fn'"),
        ({"loss_fn": print}, "it is a name"),
        ({"post": "identity"}, "a list of names"),
        ({"post": ["compute_logprob"]}, "did you mean 'compute_logprobs'"),
        ({"post": ["apply_temperature"]}, "needs a temperature"),
        ({"post": ["compute_entropy", "apply_temperature"], "config": {"temperature": 2}}, "it goes before it"),
        ({"post": ["apply_temperature"], "config": {"temperature": 0}}, "above 0"),
    ],
)
def test_bad_processing(processing: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decode_processing(processing, decode_batch({"args": [IDS]}), None)


def test_a_temperature_that_is_not_applied_is_said() -> None:
    decoded = decode_batch({"args": [IDS], "meta": {"temperature": 0.5}})
    assert decode_processing(None, decoded, 0.7).temperature is None
    assert decoded.warnings == ["batch.meta.temperature has no effect: apply_temperature is not among processing.post"]
    applied = decode_processing(
        {"post": ["arctic_platform.rl.processors.apply_temperature"]}, decode_batch({"args": [IDS]}), 0.7
    )
    assert applied.temperature == 0.7


def test_tensors_come_back_as_they_went_in() -> None:
    rows = np.ones((2, 6), np.float32)
    assert isinstance(decode_batch({"args": [torch.tensor(IDS)]}).like_input(rows), torch.Tensor)
    assert decode_batch({"args": [IDS]}).like_input(rows) is rows
    ragged = decode_batch({"args": [[torch.tensor([1, 2]), torch.tensor([3])]]}).like_input([rows[0, :2], rows[0, :1]])
    assert all(isinstance(row, torch.Tensor) for row in ragged)
