"""Sampling through gRPC: streams, versions, cancelled calls, memory, pauses."""

from __future__ import annotations

import time

import numpy as np
import pytest

from gradwire.client import Client, FailedPreconditionError, FinishReason, InvalidArgumentError
from gradwire.client.types.sampling import StreamDelta
from tests.e2e.conftest import LONG, TrainerFactory


def test_stream_deltas_join_to_the_unary_text(client: Client) -> None:
    asked = {"max_tokens": 64, "temperature": 0.9, "seed": 11, "n": 2, "log_probs": 1, "prompt_log_probs": 0}
    whole = client.sampling.generate("Once upon a time", asked)
    with client.sampling.generate_stream("Once upon a time", asked) as stream:
        joined = stream.result()
    for ours, theirs in zip(joined.results[0].completions, whole.results[0].completions, strict=True):
        assert ours.text == theirs.text
        assert list(ours.token_ids) == list(theirs.token_ids)
        np.testing.assert_array_equal(ours.log_probs, theirs.log_probs)
        assert (ours.finish_reason, ours.weight_spans) == (theirs.finish_reason, theirs.weight_spans)
    assert joined.usage.completion_tokens == whole.usage.completion_tokens
    assert joined.params == whole.params


def test_first_token_comes_at_once_and_indexes_have_no_gap(client: Client) -> None:
    with client.sampling.generate_stream("abc", max_tokens=200, ignore_eos=True, temperature=0) as stream:
        deltas: list[StreamDelta] = list(stream)
    assert len(deltas[0].token_ids) <= 8  # one, unless the machine was too busy to fetch it before the next
    position = 0
    for piece in deltas:
        assert piece.first_token_index == position
        position += len(piece.token_ids)
    assert position == 200


def seconds_to_drain(client: Client) -> float:
    """To pause is to wait for what runs: with requests still there, for nearly all of them."""
    began = time.monotonic()
    client.sampling.pause("wait", timeout=120)
    client.sampling.resume()
    return time.monotonic() - began


def test_cancel_frees_the_slot(client: Client, whole_s: float) -> None:
    streams = [client.sampling.generate_stream("x", LONG) for _ in range(8)]
    for stream in streams:
        next(iter(stream))
    for stream in streams:
        stream.cancel()
    assert seconds_to_drain(client) < whole_s / 2
    assert client.sampling.generate("y", max_tokens=4).results[0].completions[0].text


def test_deadline_frees_the_slot(client: Client, whole_s: float) -> None:
    from gradwire.client import DeadlineExceededError

    with pytest.raises(DeadlineExceededError):
        client.sampling.generate(["x"] * 8, LONG, timeout=whole_s / 5)
    assert seconds_to_drain(client) < whole_s / 2


def test_stop_strings_ids_and_min_tokens(client: Client) -> None:
    free = client.sampling.generate("stop here", max_tokens=60, temperature=0, ignore_eos=True).results[0]
    text = free.completions[0].text
    stop = text[10:12]
    cut = client.sampling.generate("stop here", max_tokens=60, temperature=0, stop=[stop]).results[0].completions[0]
    assert cut.text == text[: text.index(stop)]
    assert (cut.finish_reason, cut.stop_reason) == (FinishReason.STOP, stop)
    token = int(free.completions[0].token_ids[5])
    by_id = client.sampling.generate("stop here", max_tokens=60, temperature=0, stop_token_ids=[token], min_tokens=7)
    completion = by_id.results[0].completions[0]
    assert len(completion.token_ids) > 7 or completion.finish_reason is FinishReason.LENGTH


def test_structured_output(client: Client) -> None:
    chosen = client.sampling.generate("?", structured_output={"choice": ["left", "right"]}, max_tokens=10)
    assert chosen.results[0].completions[0].text in ("left", "right")
    number = client.sampling.generate("?", structured_output={"regex": "[0-9]{3}"}, max_tokens=10)
    assert number.results[0].completions[0].text.isdigit()


def test_chat_uses_the_template_and_counts_tokens(client: Client) -> None:
    result = client.sampling.generate([[{"role": "user", "content": "hi"}]], max_tokens=3)
    assert result.results[0].prompt.token_ids.tobytes().count(b"i") >= 1
    assert result.usage.prompt_tokens == len(result.results[0].prompt.token_ids)
    assert result.usage.completion_tokens == 3


def test_seeded_output_is_the_same_under_load_as_alone(client: Client) -> None:
    prompts = [f"prompt number {i}: " + "z" * 300 for i in range(12)]
    asked = {"max_tokens": 12, "seed": 5, "n": 8, "ignore_eos": True}
    crowd = client.sampling.generate(prompts, asked)
    client.sampling.reset_prefix_cache()
    alone = client.sampling.generate(prompts[3], asked)
    for ours, theirs in zip(crowd.results[3].completions, alone.results[0].completions, strict=True):
        assert list(ours.token_ids) == list(theirs.token_ids)


def test_tokens_say_which_weights_sampled_them(client: Client, make_trainer: TrainerFactory) -> None:
    trainer = make_trainer()
    while client.weights.get_version(trainer).weight_version <= client.weights.get_version().weight_version:
        client.training.fwd_bwd(trainer, {"input_ids": [[1, 2, 3]]}, loss="cross_entropy")
        client.training.step(trainer)
    old = client.weights.get_version().weight_version
    new = client.weights.get_version(trainer).weight_version
    with pytest.raises(FailedPreconditionError, match=f"min_weight_version is {new}"):
        client.sampling.generate("x", min_weight_version=new)
    with client.sampling.generate_stream("x", max_tokens=1900, ignore_eos=True) as stream:
        deltas = iter(stream)  # a `for` that breaks would cancel the stream
        while next(deltas).first_token_index <= 20:
            pass
        client.weights.sync(trainer, in_flight="keep")
        completion = stream.result().results[0].completions[0]
    spans = completion.weight_spans
    assert [span.version for span in spans] == [old, new]
    assert (spans[0].start, spans[0].end, spans[1].end) == (0, spans[1].start, len(completion.token_ids))
    assert client.sampling.generate("x", min_weight_version=new, max_tokens=1).results


def test_sleep_frees_memory_and_wake_brings_the_same_weights_back(client: Client) -> None:
    before = client.sampling.generate("sleepy", max_tokens=20, temperature=0).results[0].completions[0]
    change = client.sampling.sleep()
    assert change.after_bytes < change.before_bytes
    try:
        client.sampling.sleep()  # asking twice is fine
        with pytest.raises(FailedPreconditionError, match=r"(?i)wake"):
            client.sampling.generate("x")
        with pytest.raises(FailedPreconditionError, match="weights"):
            client.sampling.wake("kv_cache")
    finally:
        client.sampling.wake()
    after = client.sampling.generate("sleepy", max_tokens=20, temperature=0).results[0].completions[0]
    assert list(after.token_ids) == list(before.token_ids)


def test_errors_name_the_field_and_the_next_call_works(client: Client) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        client.sampling.generate(["fine", "x" * 5000], max_tokens=4)
    assert caught.value.field_violations[0][0].startswith("prompts[1]")
    assert client.sampling.generate("x", max_tokens=1).results
