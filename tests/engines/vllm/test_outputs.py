"""Reading vLLM's outputs, among them those it merges for a slow reader."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from vllm.logprobs import FlatLogprobs, append_logprobs_for_next_position, create_prompt_logprobs
from vllm.outputs import CompletionOutput, RequestOutput

from gradwire.server.engines.sampling import FinishReason, WeightSpan
from gradwire.server.engines.vllm.outputs import OutputReader

NONES = [None] * 9


def flat(*rows: tuple[list[int], list[float], int]) -> FlatLogprobs:
    """Positions of (token and most likely tokens, their log-probs, the token's rank)."""
    made = FlatLogprobs()
    for tokens, values, rank in rows:
        append_logprobs_for_next_position(made, tokens, values, NONES, rank, len(tokens) - 1)
    return made


def output(*parts: CompletionOutput, finished: bool = False, **more: Any) -> RequestOutput:
    values: dict[str, Any] = {"prompt_logprobs": None, "num_cached_tokens": 0, **more}
    return RequestOutput("r", None, [1, 2, 3], outputs=list(parts), finished=finished, **values)


def part(index: int, tokens: list[int], **more: Any) -> CompletionOutput:
    values: dict[str, Any] = {"logprobs": None, **more}
    return CompletionOutput(index, "x" * len(tokens), list(tokens), None, **values)


def reader(
    versions: list[tuple[str, int]] | None = None, *, prompt: int | None = None, top: int | None = None, n: int = 1
) -> OutputReader:
    states: Any = {index: SimpleNamespace(weight_version_starts=versions or [("0", 0)]) for index in range(n)}
    return OutputReader(3, prompt_log_probs=prompt, log_probs=top, states=states)


def test_positions_are_counted_per_completion() -> None:
    reads = reader(n=2)
    first = reads.read(output(part(0, [5, 6]), part(1, [7])))
    assert [(d.index, d.first_token_index, d.token_ids.tolist()) for d in first.deltas] == [(0, 0, [5, 6]), (1, 0, [7])]
    assert first.prompt is not None and first.prompt.num_tokens == 3
    second = reads.read(output(part(1, [8, 9], finish_reason="stop", stop_reason="zz"), finished=True))
    (delta,) = second.deltas
    assert (delta.first_token_index, delta.finish_reason, delta.stop_reason) == (1, FinishReason.STOP, "zz")
    assert second.prompt is None and delta.token_ids.dtype == np.int32


def test_spans_are_cut_to_the_delta() -> None:
    reads = reader([("0", 0), ("4", 3), ("5", 4)])
    assert reads.read(output(part(0, [1, 1]))).deltas[0].weight_spans == (WeightSpan(0, 0, 2),)
    assert reads.read(output(part(0, [1] * 4))).deltas[0].weight_spans == (
        WeightSpan(0, 2, 3),
        WeightSpan(4, 3, 4),
        WeightSpan(5, 4, 6),
    )
    assert reads.read(output(part(0, []))).deltas[0].weight_spans == ()


def test_unknown_finish_reason_is_a_stop() -> None:
    (delta,) = reader().read(output(part(0, [1], finish_reason="repetition"), finished=True)).deltas
    assert delta.finish_reason is FinishReason.STOP


def test_merged_log_probs() -> None:
    """vLLM drops the token's second entry when it merges: it is put back at its rank."""
    one = output(part(0, [5], logprobs=flat(([5, 8, 5], [-2.0, -1.0, -2.0], 2))))
    one.add(output(part(0, [6], logprobs=flat(([6, 7, 8], [-9.0, -1.0, -2.0], 40)))), aggregate=True)
    one.add(output(part(0, [7], logprobs=flat(([7, 7, 8], [-0.5, -0.5, -1.0], 1)))), aggregate=True)
    (delta,) = reader(top=2).read(one).deltas
    assert delta.log_probs is not None and delta.top_log_probs is not None
    assert delta.log_probs.tolist() == [-2.0, -9.0, -0.5]
    assert delta.top_log_probs.token_ids.tolist() == [[8, 5], [7, 8], [7, 8]]
    assert delta.top_log_probs.log_probs.tolist() == [[-1.0, -2.0], [-1.0, -2.0], [-0.5, -1.0]]


def test_prompt_log_probs() -> None:
    made = create_prompt_logprobs(flat_logprobs=True)
    append_logprobs_for_next_position(made, [2, 9], [-3.0, -1.0], NONES, 7, 1)
    append_logprobs_for_next_position(made, [3, 3], [-0.5, -0.5], NONES, 1, 1)
    prompt = reader(prompt=1).read(output(part(0, [1]), prompt_logprobs=made, num_cached_tokens=2)).prompt
    assert prompt is not None and prompt.log_probs is not None and prompt.top_log_probs is not None
    assert np.isnan(prompt.log_probs[0]) and prompt.log_probs[1:].tolist() == [-3.0, -0.5]
    assert prompt.top_log_probs.token_ids.tolist() == [[-1], [9], [3]]
    assert prompt.top_log_probs.log_probs.tolist() == [[-np.inf], [-1.0], [-0.5]]
    assert prompt.num_cached_tokens == 2


def test_aborted_before_the_prompt_was_read() -> None:
    made = create_prompt_logprobs(flat_logprobs=True)
    event = reader(prompt=1).read(output(part(0, [], finish_reason="abort"), prompt_logprobs=made, finished=True))
    assert event.prompt is not None and event.prompt.log_probs is None
    assert event.deltas[0].finish_reason is FinishReason.ABORT
