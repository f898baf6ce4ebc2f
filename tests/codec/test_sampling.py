"""Sampling parameters: defaults applied and echoed, numbers as they were written, rules between fields."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradwire.server.codec.sampling import (
    decode_params,
    encode_delta,
    encode_log_probs,
    encode_params,
    encode_stop,
    in_request_terms,
)
from gradwire.server.domain.params import UNLIMITED
from gradwire.server.engines.sampling import (
    CompletionDelta,
    SamplingParams,
    StructuredKind,
    StructuredOutput,
    TopLogProbs,
    WeightSpan,
)
from gradwire.server.errors import InvalidArgument
from gradwire.v1 import sampling_params_pb2 as pb


def decode(**given: Any) -> SamplingParams:
    return decode_params(pb.SamplingParams(**given), max_log_probs=20).params


def refused(**given: Any) -> list[str]:
    with pytest.raises(InvalidArgument) as caught:
        decode(**given)
    return [violation.field for violation in caught.value.violations]


def test_what_is_absent_takes_the_documented_default() -> None:
    assert decode() == SamplingParams(max_tokens=UNLIMITED)


def test_all_defaults_are_echoed() -> None:
    echoed = encode_params(decode(), max_tokens=48)
    for name in ("n", "temperature", "top_p", "top_k", "min_p", "min_tokens", "ignore_eos", "skip_special_tokens"):
        assert echoed.HasField(name), name
    assert (echoed.n, echoed.temperature, echoed.top_p, echoed.max_tokens) == (1, 1.0, 1.0, 48)
    assert not echoed.HasField("seed") and not echoed.HasField("log_probs")


def test_zeros_are_not_taken_for_absent() -> None:
    params = decode(temperature=0.0, top_k=0, seed=0, log_probs=0, prompt_log_probs=0, skip_special_tokens=False)
    assert (params.temperature, params.seed, params.log_probs, params.prompt_log_probs) == (0.0, 0, 0, 0)
    assert params.skip_special_tokens is False


@given(st.integers(0, 999_999), st.integers(0, 5))
def test_a_number_of_six_digits_stays_what_was_written(digits: int, places: int) -> None:
    written = digits / 10**places
    assert decode(temperature=written).temperature == written


def test_what_was_sent_is_echoed_as_it_was_sent() -> None:
    sent = pb.SamplingParams(
        n=3, temperature=0.7, top_p=0.9, top_k=5, min_p=0.1, max_tokens=9, min_tokens=2, stop=["a", "b"],
        stop_token_ids=[1], include_stop_str_in_output=True, ignore_eos=True, seed=2**53 - 1, presence_penalty=-0.5,
        frequency_penalty=0.25, repetition_penalty=1.1, log_probs=3, prompt_log_probs=0, bad_words=["x"],
        allowed_token_ids=[4, 5], logit_bias={7: -1.5}, skip_special_tokens=False,
        structured_output=pb.StructuredOutput(regex="a+"),
    )  # fmt: skip
    assert {f.name for f, _ in sent.ListFields()} == {f.name for f in pb.SamplingParams.DESCRIPTOR.fields}
    read = decode_params(sent, max_log_probs=20)
    assert encode_params(read.params, max_tokens=9) == read.encode(max_tokens=9) == sent


@pytest.mark.parametrize("size", [1, 5000])
def test_the_same_parameters_again(size: int) -> None:
    """Small ones are remembered: no answer is changed by one before it, nor by another job's limits."""
    sent = pb.SamplingParams(n=2, stop=["x" * size], log_probs=5)
    first = decode_params(sent, max_log_probs=20)
    first.encode(max_tokens=3).stop.append("another")
    again = decode_params(sent, max_log_probs=20)
    assert again.params == first.params
    assert (again.encode(max_tokens=4).max_tokens, list(again.encode(max_tokens=4).stop)) == (4, ["x" * size])
    with pytest.raises(InvalidArgument, match="at most 4"):
        decode_params(sent, max_log_probs=4)


def test_requests_share_no_biases() -> None:
    sent = pb.SamplingParams(logit_bias={1: 1.0})
    decode_params(sent, max_log_probs=0).params.logit_bias[7] = 9.0
    assert decode_params(sent, max_log_probs=0).params.logit_bias == {1: 1.0}


def test_each_domain_parameter_can_be_sent() -> None:
    ours = {field.name for field in fields(SamplingParams)} - {"structured"}
    assert ours <= {field.name for field in pb.SamplingParams.DESCRIPTOR.fields}


@pytest.mark.parametrize(
    ("message", "output"),
    [
        (pb.StructuredOutput(json_schema="{}"), StructuredOutput(StructuredKind.JSON_SCHEMA, "{}")),
        (pb.StructuredOutput(json_object=True), StructuredOutput(StructuredKind.JSON_OBJECT)),
        (pb.StructuredOutput(regex="a"), StructuredOutput(StructuredKind.REGEX, "a")),
        (pb.StructuredOutput(grammar="g"), StructuredOutput(StructuredKind.GRAMMAR, "g")),
        (
            pb.StructuredOutput(choice=pb.Choice(options=["a", "b"])),
            StructuredOutput(StructuredKind.CHOICE, choices=("a", "b")),
        ),
    ],
)
def test_each_constraint_comes_through(message: pb.StructuredOutput, output: StructuredOutput) -> None:
    params = decode(structured_output=message)
    assert params.structured == output
    assert encode_params(params, max_tokens=1).structured_output == message


def test_rules_between_fields_name_the_field() -> None:
    assert refused(n=2, temperature=0.0) == ["params.n"]
    assert refused(min_tokens=5, max_tokens=4) == ["params.min_tokens"]
    assert refused(log_probs=21, prompt_log_probs=22) == ["params.log_probs", "params.prompt_log_probs"]
    assert refused(structured_output=pb.StructuredOutput()) == ["params.structured_output"]


def test_several_completions_need_a_temperature_and_one_does_not() -> None:
    assert decode(n=1, temperature=0.0).n == 1
    assert decode(n=2).n == 2
    assert decode(min_tokens=5).max_tokens == UNLIMITED


def test_an_engines_names_become_those_of_the_request() -> None:
    with pytest.raises(InvalidArgument) as caught, in_request_terms():
        raise InvalidArgument.at("params.structured", "is no JSON schema")
    assert caught.value.violations[0].field == "params.structured_output"


def test_log_probs_travel_as_bytes() -> None:
    top = TopLogProbs(np.array([[1, 2]], np.int32), np.array([[-0.5, -1.5]], np.float32))
    message = encode_log_probs(np.array([-0.5], np.float32), top)
    assert message is not None
    assert np.frombuffer(message.values, "<f4").tolist() == [-0.5]
    assert message.top_k == 2
    assert np.frombuffer(message.top_token_ids, "<i4").tolist() == [1, 2]
    assert encode_log_probs(None, None) is None


def test_a_delta_keeps_its_place_and_its_weights() -> None:
    delta = CompletionDelta(1, 4, np.array([7, 8], np.int32), "ab", weight_spans=(WeightSpan(3, 4, 6),))
    message = encode_delta(delta)
    assert (message.index, message.first_token_index, message.text) == (1, 4, "ab")
    assert np.frombuffer(message.token_ids, "<i4").tolist() == [7, 8]
    assert [(s.version, s.start, s.end) for s in message.weight_spans] == [(3, 4, 6)]


def test_a_stop_is_text_or_a_token_or_nothing() -> None:
    assert encode_stop(None) is None
    for reason, kind in (("end", "stop"), (0, "token_id")):
        message = encode_stop(reason)
        assert message is not None
        assert message.WhichOneof("reason") == kind
