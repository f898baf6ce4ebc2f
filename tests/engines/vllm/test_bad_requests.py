"""No request, however wrong, costs more than its own answer: the fields are named and the engine lives."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gradwire.server.engines.sampling import SamplingParams, StructuredKind, StructuredOutput
from gradwire.server.engines.vllm.engine import VllmSampler
from gradwire.server.errors import InvalidArgument
from tests.engines.vllm.support import greedy, sample, until_idle

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

OUT_OF_RANGE = [
    ("temperature", -0.1, "params.temperature"),
    ("temperature", 2.5, "params.temperature"),
    ("temperature", 0.005, "params.temperature"),
    ("temperature", float("nan"), "params.temperature"),
    ("top_p", 0.0, "params.top_p"),
    ("top_p", 1.1, "params.top_p"),
    ("top_k", -2, "params.top_k"),
    ("min_p", 1.5, "params.min_p"),
    ("n", 0, "params.n"),
    ("max_tokens", 0, "params.max_tokens"),
    ("min_tokens", -1, "params.min_tokens"),
    ("min_tokens", 17, "params.min_tokens"),
    ("stop", ("",), "params.stop"),
    ("stop_token_ids", (260,), "params.stop_token_ids"),
    ("stop_token_ids", (-1,), "params.stop_token_ids"),
    ("allowed_token_ids", (999,), "params.allowed_token_ids"),
    ("logit_bias", {999: 1.0}, "params.logit_bias"),
    ("logit_bias", {5: 101.0}, "params.logit_bias[5]"),
    ("bad_words", ("",), "params.bad_words"),
    ("log_probs", 21, "params.log_probs"),
    ("log_probs", -1, "params.log_probs"),
    ("prompt_log_probs", 21, "params.prompt_log_probs"),
    ("presence_penalty", 2.1, "params.presence_penalty"),
    ("frequency_penalty", -2.1, "params.frequency_penalty"),
    ("repetition_penalty", 0.0, "params.repetition_penalty"),
    ("seed", -1, "params.seed"),
    ("seed", 2**63, "params.seed"),
    ("structured", StructuredOutput(StructuredKind.JSON_SCHEMA, "{not json"), "params.structured"),
    ("structured", StructuredOutput(StructuredKind.JSON_SCHEMA, '{"type": 7}'), "params.structured"),
    ("structured", StructuredOutput(StructuredKind.REGEX, "(unclosed"), "params.structured"),
    ("structured", StructuredOutput(StructuredKind.GRAMMAR, "root ::= nowhere"), "params.structured"),
    ("structured", StructuredOutput(StructuredKind.CHOICE), "params.structured.choices"),
]

WRONG_TYPE = [
    ("n", "2"),
    ("n", True),
    ("temperature", "hot"),
    ("top_p", None),
    ("top_k", 1.5),
    ("max_tokens", 2**40),
    ("seed", "x"),
    ("seed", 1.0),
    ("stop", (5,)),
    ("stop_token_ids", ("5",)),
    ("bad_words", (b"bytes",)),
    ("logit_bias", {5: "much"}),
    ("logit_bias", {"5": 1.0}),
    ("ignore_eos", 1),
    ("log_probs", "2"),
    ("allowed_token_ids", (2**70,)),
]


async def refused(sampler: VllmSampler, params: SamplingParams) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        await asyncio.wait_for(sample(sampler, "Hello", params), 20)
    return caught.value


@pytest.mark.parametrize(("name", "value", "field"), OUT_OF_RANGE)
async def test_values(sampler: VllmSampler, name: str, value: Any, field: str) -> None:
    error = await refused(sampler, replace(SamplingParams(), **{name: value}))
    assert [violation.field for violation in error.violations] == [field], str(error)


@pytest.mark.parametrize(("name", "value"), WRONG_TYPE)
async def test_types(sampler: VllmSampler, name: str, value: Any) -> None:
    error = await refused(sampler, replace(SamplingParams(), **{name: value}))
    assert error.violations[0].field.startswith(f"params.{name}"), str(error)


async def test_several_greedy_completions(sampler: VllmSampler) -> None:
    assert (await refused(sampler, SamplingParams(n=2, temperature=0.0))).violations[0].field == "params.n"


@pytest.mark.parametrize(
    ("tokens", "field", "text"),
    [
        ([], "prompt.token_ids", "empty"),
        ([65, 260], "prompt.token_ids[1]", "ids 0 to 259"),
        ([-1], "prompt.token_ids[0]", "-1 is not in the vocabulary"),
        ([65] * 512, "prompt.token_ids", "at most 511 tokens fit"),
    ],
)
async def test_prompts(sampler: VllmSampler, tokens: list[int], field: str, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text) as caught:
        await sample(sampler, np.array(tokens, dtype=np.int32))
    assert caught.value.violations[0].field == field


async def test_priority_that_the_wire_cannot_carry(sampler: VllmSampler) -> None:
    with pytest.raises(InvalidArgument, match="priority"):
        await sample(sampler, "Hello", priority=1 << 70)


async def test_longest_prompt_fits(sampler: VllmSampler) -> None:
    assert len((await sample(sampler, np.full(511, 65, np.int32))).token_ids) == 1


async def test_engine_lives_after_all_of_it(sampler: VllmSampler) -> None:
    await sampler.check_health()
    await until_idle(sampler)
    assert len(await greedy(sampler)) == 24
