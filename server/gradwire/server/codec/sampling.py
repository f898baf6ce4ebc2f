"""Sampling messages <-> domain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gradwire.server.domain.params import resolve
from gradwire.server.engines.sampling import (
    CompletionDelta,
    FinishReason,
    LogProbs,
    SamplingParams,
    StructuredKind,
    StructuredOutput,
    TopLogProbs,
    WeightSpan,
)
from gradwire.server.errors import FieldViolation, InvalidArgument
from gradwire.v1 import sampling_params_pb2, sampling_pb2

_FINISH = {
    FinishReason.STOP: sampling_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: sampling_pb2.FINISH_REASON_LENGTH,
    FinishReason.ABORT: sampling_pb2.FINISH_REASON_ABORT,
    FinishReason.ERROR: sampling_pb2.FINISH_REASON_ERROR,
}
_SCALARS = (
    "n",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "min_tokens",
    "include_stop_str_in_output",
    "ignore_eos",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "skip_special_tokens",
)
_OPTIONAL = ("seed", "log_probs", "prompt_log_probs")
_LISTS = ("stop", "stop_token_ids", "bad_words", "allowed_token_ids")
_SMALL = 1024  # bytes of parameters that are worth remembering; those with a schema are not


@dataclass(frozen=True, slots=True)
class ReadParams:
    """Parameters that came with a request."""

    params: SamplingParams
    _encoded: sampling_params_pb2.SamplingParams

    def encode(self, *, max_tokens: int) -> sampling_params_pb2.SamplingParams:
        """As they were used; `max_tokens` is what the context allowed."""
        message = sampling_params_pb2.SamplingParams()
        message.CopyFrom(self._encoded)
        message.max_tokens = max_tokens
        return message


def decode_params(message: sampling_params_pb2.SamplingParams, *, max_log_probs: int) -> ReadParams:
    """Resolved parameters. The rules in the protos hold already; `resolve` adds those between fields."""
    data = message.SerializeToString()
    # Biases are a dict, which requests must not share, and which the wire writes in any order.
    remembered = len(data) <= _SMALL and not message.logit_bias
    return (_read if remembered else _read.__wrapped__)(data, max_log_probs)


@lru_cache(256)  # a loop samples with the same ones again and again
def _read(data: bytes, max_log_probs: int) -> ReadParams:
    message = sampling_params_pb2.SamplingParams.FromString(data)
    params = resolve(given_params(message), max_log_probs=max_log_probs)
    return ReadParams(params, encode_params(params, max_tokens=params.max_tokens))


def given_params(message: sampling_params_pb2.SamplingParams) -> dict[str, Any]:
    """What the message says, by the names of SamplingParams' fields; a list or map that is empty says nothing."""
    # A proto float is 32 bits wide; round it to what the caller wrote, so that 0.7 is 0.7 again.
    given: dict[str, Any] = {}
    for name in (*_SCALARS, *_OPTIONAL, "max_tokens"):
        if message.HasField(name):
            value = getattr(message, name)
            given[name] = float(f"{value:.7g}") if isinstance(value, float) else value
    given |= {name: tuple(getattr(message, name)) for name in _LISTS if getattr(message, name)}
    if message.logit_bias:
        given["logit_bias"] = dict(message.logit_bias)
    structured = _decode_structured(message)
    if structured is not None:
        given["structured"] = structured
    return given


def _decode_structured(message: sampling_params_pb2.SamplingParams) -> StructuredOutput | None:
    if not message.HasField("structured_output"):
        return None
    constraint = message.structured_output
    kind = constraint.WhichOneof("constraint")
    if kind is None:
        raise InvalidArgument.at("params.structured_output", "is empty; leave it out or give one constraint")
    if kind == "choice":
        return StructuredOutput(StructuredKind.CHOICE, choices=tuple(constraint.choice.options))
    value = "" if kind == "json_object" else getattr(constraint, kind)
    return StructuredOutput(StructuredKind(kind), value=value)


@contextmanager
def in_request_terms() -> Iterator[None]:
    """An engine's InvalidArgument, with its own names of parameters as the request's."""
    try:
        yield
    except InvalidArgument as error:
        violations = [
            FieldViolation("params.structured_output" if v.field == "params.structured" else v.field, v.description)
            for v in error.violations
        ]
        raise InvalidArgument(violations, reason=error.reason, metadata=error.metadata) from error


def encode_params(params: SamplingParams, *, max_tokens: int) -> sampling_params_pb2.SamplingParams:
    """The parameters as they were used; `max_tokens` is what the context allowed."""
    message = sampling_params_pb2.SamplingParams(
        max_tokens=max_tokens, logit_bias=params.logit_bias, **{name: getattr(params, name) for name in _SCALARS}
    )
    for name in _OPTIONAL:
        if getattr(params, name) is not None:
            setattr(message, name, getattr(params, name))
    for name in _LISTS:
        getattr(message, name).extend(getattr(params, name))
    if params.structured is not None:
        kind = params.structured.kind
        if kind is StructuredKind.CHOICE:
            message.structured_output.choice.options.extend(params.structured.choices)
        elif kind is StructuredKind.JSON_OBJECT:
            message.structured_output.json_object = True
        else:
            setattr(message.structured_output, kind.value, params.structured.value)
    return message


def encode_given(given: Mapping[str, Any]) -> sampling_params_pb2.SamplingParams:
    """Defaults of a deployment: no maps and no constraints are among them."""
    return sampling_params_pb2.SamplingParams(**given)


def encode_completion(completion: CompletionDelta) -> sampling_pb2.Completion:
    """A completion, whole."""
    return sampling_pb2.Completion(
        index=completion.index,
        text=completion.text,
        token_ids=completion.token_ids.astype("<i4", copy=False).tobytes(),
        log_probs=encode_log_probs(completion.log_probs, completion.top_log_probs),
        weight_spans=encode_spans(completion.weight_spans),
        finish_reason=encode_finish(completion.finish_reason),
        stop_reason=encode_stop(completion.stop_reason),
    )


def encode_log_probs(values: LogProbs | None, top: TopLogProbs | None) -> sampling_pb2.TokenLogProbs | None:
    """Log-probs as bytes, None when there are none."""
    if values is None:
        return None
    message = sampling_pb2.TokenLogProbs(values=np.asarray(values, dtype="<f4").tobytes())
    if top is not None and top.token_ids.size:
        message.top_k = top.token_ids.shape[1]
        message.top_token_ids = np.asarray(top.token_ids, dtype="<i4").tobytes()
        message.top_values = np.asarray(top.log_probs, dtype="<f4").tobytes()
    return message


def encode_spans(spans: tuple[WeightSpan, ...]) -> list[sampling_pb2.WeightSpan]:
    """Weight spans."""
    return [sampling_pb2.WeightSpan(version=s.version, start=s.start, end=s.end) for s in spans]


def encode_stop(reason: str | int | None) -> sampling_pb2.StopReason | None:
    """What a completion stopped at."""
    if reason is None:
        return None
    if isinstance(reason, str):
        return sampling_pb2.StopReason(stop=reason)
    return sampling_pb2.StopReason(token_id=reason)


def encode_delta(delta: CompletionDelta) -> sampling_pb2.CompletionDelta:
    """New tokens for a stream."""
    return sampling_pb2.CompletionDelta(
        index=delta.index,
        first_token_index=delta.first_token_index,
        text=delta.text,
        token_ids=delta.token_ids.astype("<i4", copy=False).tobytes(),
        log_probs=encode_log_probs(delta.log_probs, delta.top_log_probs),
        weight_spans=encode_spans(delta.weight_spans),
    )


def encode_finish(reason: FinishReason | None) -> sampling_pb2.FinishReason:
    """A finish reason."""
    return _FINISH[reason] if reason is not None else sampling_pb2.FINISH_REASON_UNSPECIFIED
