"""The documents' dict shapes, made of results without a server."""

from __future__ import annotations

import numpy as np

from gradwire.client.arctic.batch import decode_batch
from gradwire.client.arctic.processing import Processing
from gradwire.client.arctic.results import fwd_bwd_result, score_result, token_dicts
from gradwire.client.types.sampling import PromptInfo, Score, TopLogProbs
from gradwire.client.types.training import FwdBwdResult

BATCH = decode_batch({"args": [np.array([[1, 2]])]})


def test_metrics_have_the_peers_names_and_the_time_it_took() -> None:
    found = FwdBwdResult(1.0, 4, 8, 1, {"clip_fraction": 0.5, "ratio_mean": 1.5}, 3, None, None, ("w",), 0.5, 2.0)
    result = fwd_bwd_result(7, found, Processing(), BATCH)
    metrics = result["metrics"]
    assert (metrics["tokens_per_second"], metrics["clip_ratio"], metrics["importance_weight"]) == (4.0, 0.5, 1.5)
    assert (result["job_id"], result["avg_loss"], result["weight_version"], result["warnings"]) == (7, 1.0, 3, ["w"])


def test_a_token_beyond_the_alternatives_has_no_rank() -> None:
    top = TopLogProbs(np.array([[5, 6], [7, -1]], np.int32), np.array([[-0.1, -2.0], [-0.5, 0.0]], np.float32))
    entries = token_dicts(np.array([9, 7], np.int32), np.array([-3.0, -0.5], np.float32), top)
    assert [{token: entry["rank"] for token, entry in place.items()} for place in entries] == [
        {9: None, 5: 1, 6: 2},
        {7: 1},
    ]


def test_scores_are_dicts_and_arrays() -> None:
    prompt = PromptInfo(np.array([1, 2], np.int32), 0, np.array([np.nan, -1.0], np.float32), None)
    score = Score(prompt, np.array([3], np.int32), np.array([-2.0], np.float32), None, 4)
    result = score_result(score)
    assert result["prompt_logprobs"] == [None, {2: {"logprob": -1.0, "rank": None}}]
    assert result["logprobs"] == [{3: {"logprob": -2.0, "rank": None}}] and result["log_probs"].tolist() == [-2.0]
    assert (result["prompt_len"], result["generation_len"], result["weight_version"]) == (2, 1, 4)
