"""Sampling against Hugging Face's own forward pass, and what the parameters promise."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from gradwire.server.engines.sampling import FinishReason, SamplingParams, StructuredKind, StructuredOutput, WeightSpan
from gradwire.server.engines.vllm.engine import VllmSampler
from tests.engines.vllm.support import GREEDY, Reference, events, joined, prompt_of, sample

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

LONG = "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness. "


async def test_info(sampler: VllmSampler) -> None:
    info = sampler.info
    assert (info.name, info.dtype, info.max_model_len, info.vocab_size) == ("tiny", "float32", 512, 260)
    assert info.eos_token_ids == (259,) and info.has_chat_template and info.architecture == "LlamaForCausalLM"


@pytest.mark.parametrize("prompt", ["Hello there", LONG])
async def test_greedy_is_hugging_faces(sampler: VllmSampler, reference: Reference, prompt: str) -> None:
    got = await sample(sampler, prompt)
    assert got.token_ids.tolist() == reference.greedy(sampler.tokenize(prompt))
    assert got.finish_reason is FinishReason.LENGTH
    assert got.weight_spans == (WeightSpan(0, 0, len(got.token_ids)),)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
async def test_log_probs_are_the_models_own(sampler: VllmSampler, reference: Reference, temperature: float) -> None:
    """Raw log-probs: temperature and top_k shape what is sampled, not what is reported."""
    params = SamplingParams(
        temperature=temperature, top_k=5, max_tokens=20, ignore_eos=True, log_probs=3, prompt_log_probs=2
    )
    collected = await events(sampler, LONG, params)
    prompt, completion = prompt_of(collected), joined(collected)
    tokens = [*sampler.tokenize(LONG).tolist(), *completion.token_ids.tolist()]
    expected = reference.log_probs(tokens)
    own = expected[np.arange(len(tokens)), tokens]

    assert prompt.log_probs is not None and completion.log_probs is not None
    assert np.isnan(prompt.log_probs[0]) and prompt.log_probs.dtype == np.float32
    np.testing.assert_allclose(prompt.log_probs[1:], own[1 : prompt.num_tokens], atol=1e-4)
    np.testing.assert_allclose(completion.log_probs, own[prompt.num_tokens :], atol=1e-4)

    top = completion.top_log_probs
    assert top is not None and top.log_probs.shape == (20, 3)
    np.testing.assert_allclose(top.log_probs, np.sort(expected[prompt.num_tokens :])[:, :-4:-1], atol=1e-4)
    assert prompt.top_log_probs is not None
    assert prompt.top_log_probs.token_ids.shape == (prompt.num_tokens, 2)
    assert (prompt.top_log_probs.token_ids[0] == -1).all() and np.isneginf(prompt.top_log_probs.log_probs[0]).all()
    np.testing.assert_allclose(
        prompt.top_log_probs.log_probs[1:], np.sort(expected[1 : prompt.num_tokens])[:, :-3:-1], atol=1e-4
    )


async def test_log_probs_of_the_tokens_alone(sampler: VllmSampler) -> None:
    collected = await events(sampler, "Hello", SamplingParams(max_tokens=5, ignore_eos=True, log_probs=0))
    completion = joined(collected)
    assert completion.log_probs is not None and completion.log_probs.shape == (5,)
    assert completion.top_log_probs is None and prompt_of(collected).log_probs is None


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(seed=3, max_tokens=40, log_probs=2, stop=("u", "==="))])
async def test_deltas_join_to_the_whole(sampler: VllmSampler, params: SamplingParams) -> None:
    streamed = await events(sampler, LONG, params, stream=True)
    whole = joined(await events(sampler, LONG, params))
    together = joined(streamed)
    # The first token goes at once: alone, unless the machine was too busy to fetch it before the next.
    assert len(streamed) > 1 and len(streamed[0].deltas[0].token_ids) <= 8
    assert (together.text, together.finish_reason, together.stop_reason) == (
        whole.text,
        whole.finish_reason,
        whole.stop_reason,
    )
    np.testing.assert_array_equal(together.token_ids, whole.token_ids)
    if whole.log_probs is not None and together.log_probs is not None:
        np.testing.assert_allclose(together.log_probs, whole.log_probs, atol=1e-4)


async def test_several_completions(sampler: VllmSampler) -> None:
    params = SamplingParams(n=5, seed=11, max_tokens=12, ignore_eos=True, log_probs=1)
    (whole,) = await events(sampler, "Hello", params)
    assert sorted(delta.index for delta in whole.deltas) == [0, 1, 2, 3, 4]
    assert len({delta.text for delta in whole.deltas}) == 5
    streamed = await events(sampler, "Hello", params, stream=True)
    for delta in whole.deltas:
        np.testing.assert_array_equal(joined(streamed, delta.index).token_ids, delta.token_ids)
        assert delta.weight_spans == (WeightSpan(0, 0, 12),)


async def test_stop_string_is_cut_and_named(sampler: VllmSampler) -> None:
    text = (await sample(sampler, "Hello there")).text
    stop = text[9:11]
    got = await sample(sampler, "Hello there", SamplingParams(temperature=0, max_tokens=24, stop=("zzz", stop)))
    assert got.text == text[: text.index(stop)]
    assert (got.finish_reason, got.stop_reason) == (FinishReason.STOP, stop)
    kept = SamplingParams(temperature=0, max_tokens=24, stop=(stop,), include_stop_str_in_output=True)
    assert (await sample(sampler, "Hello there", kept)).text == text[: text.index(stop)] + stop


async def test_stop_token_and_min_tokens(sampler: VllmSampler) -> None:
    tokens = (await sample(sampler, "Hello there")).token_ids.tolist()
    got = await sample(
        sampler, "Hello there", SamplingParams(temperature=0, max_tokens=24, stop_token_ids=(tokens[2],))
    )
    assert got.token_ids.tolist() == tokens[: tokens.index(tokens[2]) + 1]
    assert (got.finish_reason, got.stop_reason) == (FinishReason.STOP, tokens[2])
    late = SamplingParams(temperature=0, max_tokens=24, stop_token_ids=(tokens[2],), min_tokens=10)
    assert len((await sample(sampler, "Hello there", late)).token_ids) >= 10


async def test_max_tokens_is_cut_to_the_context(sampler: VllmSampler) -> None:
    prompt = np.full(500, 65, dtype=np.int32)
    params = SamplingParams(max_tokens=1000, min_tokens=900, ignore_eos=True)
    got = await sample(sampler, prompt, params)
    assert len(got.token_ids) == 12 and got.finish_reason is FinishReason.LENGTH


async def test_allowed_tokens_bias_and_bad_words(sampler: VllmSampler) -> None:
    allowed = SamplingParams(max_tokens=30, allowed_token_ids=(65, 66), ignore_eos=True)
    assert set((await sample(sampler, "Hello", allowed)).text) <= {"A", "B"}
    biased = SamplingParams(temperature=0, max_tokens=5, logit_bias={67: 100.0})
    assert (await sample(sampler, "Hello", biased)).text == "CCCCC"
    text = (await sample(sampler, "Hello")).text
    forbidden = SamplingParams(temperature=0, max_tokens=24, bad_words=(text[1],), ignore_eos=True)
    assert text[1] not in (await sample(sampler, "Hello", forbidden)).text


SCHEMA = json.dumps({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]})


@pytest.mark.parametrize(
    ("output", "matches"),
    [
        (StructuredOutput(StructuredKind.JSON_SCHEMA, SCHEMA), r'\{\s*"ok"\s*:\s*(true|false)\s*\}'),
        (StructuredOutput(StructuredKind.REGEX, "[0-9]{3}-[a-f]{2}"), "[0-9]{3}-[a-f]{2}"),
        (StructuredOutput(StructuredKind.CHOICE, choices=("red", "blue")), "red|blue"),
        (StructuredOutput(StructuredKind.GRAMMAR, 'root ::= "yes" | "no" "!"'), "yes|no!"),
    ],
)
async def test_structured_output(sampler: VllmSampler, output: StructuredOutput, matches: str) -> None:
    got = await sample(sampler, "Hello", SamplingParams(max_tokens=200, structured=output))
    assert re.fullmatch(matches, got.text.strip()), got.text
    assert got.finish_reason is FinishReason.STOP


async def test_prefix_cache_salt_and_reset(sampler: VllmSampler) -> None:
    """A prefix is found again by the same salt alone, and not after a reset."""
    prompt = sampler.tokenize(LONG * 3)
    params = SamplingParams(temperature=0, max_tokens=2)

    async def cached(salt: str | None) -> int:
        return prompt_of(await events(sampler, prompt, params, cache_salt=salt)).num_cached_tokens

    await sampler.reset_prefix_cache()
    assert await cached("one") == 0
    assert await cached("one") >= 256
    assert await cached("two") == 0
    await sampler.reset_prefix_cache()
    assert await cached("one") == 0


async def test_prompt_log_probs_of_a_cached_prompt_are_whole(sampler: VllmSampler) -> None:
    prompt = sampler.tokenize(LONG * 3)
    for _ in range(2):
        params = SamplingParams(max_tokens=1, prompt_log_probs=0)
        log_probs = prompt_of(await events(sampler, prompt, params)).log_probs
        assert log_probs is not None and np.isfinite(log_probs[1:]).all() and len(log_probs) == len(prompt)


async def test_priority_is_taken(sampler: VllmSampler) -> None:
    got = await sample(sampler, "Hello", SamplingParams(max_tokens=3, ignore_eos=True), priority=-5)
    assert len(got.token_ids) == 3
