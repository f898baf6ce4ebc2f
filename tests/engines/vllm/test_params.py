"""Our parameters in vLLM's terms: what test_bad_requests.py does not see from outside."""

from __future__ import annotations

import numpy as np
import pytest
from vllm.sampling_params import RequestOutputKind

from gradwire.server.engines.sampling import SamplingParams, StructuredKind, StructuredOutput
from gradwire.server.engines.vllm.params import to_vllm
from gradwire.server.errors import InvalidArgument


def test_defaults_and_delivery() -> None:
    streamed = to_vllm(SamplingParams(), stream=True, room=100, stream_interval=4)
    assert (streamed.output_kind, streamed.stream_interval) == (RequestOutputKind.DELTA, 4)
    whole = to_vllm(SamplingParams(), stream=False, room=100, stream_interval=4)
    assert (whole.output_kind, whole.stream_interval) == (RequestOutputKind.FINAL_ONLY, None)
    assert whole.flat_logprobs and whole.logprobs is None and whole.seed is None and whole.max_tokens == 16


def test_numbers_of_numpy_become_pythons() -> None:
    params = SamplingParams(
        temperature=np.float32(0.5),  # type: ignore[arg-type]
        top_k=np.int64(3),  # type: ignore[arg-type]
        stop_token_ids=(np.int32(7),),  # type: ignore[arg-type]
        logit_bias={np.int64(4): np.float64(1.5)},  # type: ignore[dict-item]
    )
    made = to_vllm(params, stream=False, room=10)
    assert type(made.temperature) is float and type(made.top_k) is int
    assert made.stop_token_ids == [7] and type(made.stop_token_ids[0]) is int
    assert made.logit_bias == {4: 1.5} and [type(key) for key in made.logit_bias] == [int]


@pytest.mark.parametrize(
    ("max_tokens", "min_tokens", "room", "expected"),
    [(16, 0, 100, (16, 0)), (50, 0, 20, (20, 0)), (50, 40, 20, (20, 20)), (50, 10, 20, (20, 10))],
)
def test_limits_are_cut_to_the_context(max_tokens: int, min_tokens: int, room: int, expected: tuple[int, int]) -> None:
    made = to_vllm(SamplingParams(max_tokens=max_tokens, min_tokens=min_tokens), stream=False, room=room)
    assert (made.max_tokens, made.min_tokens) == expected


def test_seed_leaves_room_for_every_completion() -> None:
    assert to_vllm(SamplingParams(n=4, seed=2**63 - 5), stream=False, room=9).seed == 2**63 - 5
    with pytest.raises(InvalidArgument, match="seed"):
        to_vllm(SamplingParams(n=4, seed=2**63 - 4), stream=False, room=9)


@pytest.mark.parametrize(
    ("output", "attribute", "value"),
    [
        (StructuredOutput(StructuredKind.JSON_SCHEMA, "{}"), "json", "{}"),
        (StructuredOutput(StructuredKind.JSON_OBJECT), "json_object", True),
        (StructuredOutput(StructuredKind.REGEX, "a+"), "regex", "a+"),
        (StructuredOutput(StructuredKind.CHOICE, choices=("a", "b")), "choice", ["a", "b"]),
        (StructuredOutput(StructuredKind.GRAMMAR, 'root ::= "a"'), "grammar", 'root ::= "a"'),
    ],
)
def test_structured(output: StructuredOutput, attribute: str, value: object) -> None:
    made = to_vllm(SamplingParams(structured=output), stream=False, room=9).structured_outputs
    assert made is not None and getattr(made, attribute) == value


@pytest.mark.parametrize("kind", [StructuredKind.JSON_SCHEMA, StructuredKind.REGEX, StructuredKind.GRAMMAR])
def test_structured_without_a_value(kind: StructuredKind) -> None:
    with pytest.raises(InvalidArgument, match="is empty"):
        to_vllm(SamplingParams(structured=StructuredOutput(kind)), stream=False, room=9)
