"""Sampling's messages to results, and parameters to messages. Streams are joined in `_convert.joining`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gradwire.client._convert.enums import enum_from_proto
from gradwire.client._convert.messages import as_mapping, fill, put_field, read
from gradwire.client._convert.prompts import encodable, is_one_prompt, prompts_to_proto
from gradwire.client._convert.tensors import float32_from_bytes, int32_from_bytes, token_bytes
from gradwire.client._core.arguments import given as shown
from gradwire.client._core.arguments import items as several
from gradwire.client.types.sampling import (
    Completion,
    FinishReason,
    Float32Array,
    GenerateResult,
    MemoryChange,
    PromptInfo,
    PromptResult,
    SamplingParams,
    Score,
    StreamDelta,
    StructuredOutput,
    TopLogProbs,
    Usage,
    WeightSpan,
)
from gradwire.v1 import sampling_params_pb2, sampling_pb2


def params_to_proto(params: object | None, keywords: Mapping[str, Any]) -> sampling_params_pb2.SamplingParams:
    """Parameters and the keywords that override them. TypeError names the key nearest to an unknown one."""
    values = dict(as_mapping(params, "params", "SamplingParams")) if params is not None else {}
    values.update(keywords)
    structured = values.pop("structured_output", None)
    message = sampling_params_pb2.SamplingParams()
    fill(message, values, "params")
    if structured is not None:
        message.structured_output.CopyFrom(_structured_to_proto(structured))
    return message


def _structured_to_proto(value: object) -> sampling_params_pb2.StructuredOutput:
    where = "params.structured_output"
    given = {key: item for key, item in as_mapping(value, where, "StructuredOutput").items() if item is not None}
    if len(given) > 1:
        raise ValueError(f"{where} has {', '.join(sorted(given))}; give exactly one of them")
    message = sampling_params_pb2.StructuredOutput()
    if isinstance(given.get("json_schema"), Mapping):
        given["json_schema"] = json.dumps(given["json_schema"])
    if "choice" in given:
        put_field(message.choice, "options", given.pop("choice"), f"{where}.choice")
    fill(message, given, where)
    if message.WhichOneof("constraint") is None:
        raise ValueError(f"{where} is empty; give json_schema, regex, choice, grammar or json_object")
    return message


def params_from_proto(message: sampling_params_pb2.SamplingParams) -> SamplingParams:
    """The parameters that the server echoes."""
    return read(SamplingParams, message, {"structured_output": _structured_from_proto})


def _structured_from_proto(message: sampling_params_pb2.StructuredOutput) -> StructuredOutput:
    kind = message.WhichOneof("constraint")
    if kind is None:
        return StructuredOutput()
    value: Any = tuple(message.choice.options) if kind == "choice" else getattr(message, kind)
    return StructuredOutput(**{kind: value})


def score_items_to_proto(prompts: Any, completions: Any) -> list[sampling_pb2.ScoreItem]:
    """One item a prompt, each with its completion: text, token ids or none."""
    one = is_one_prompt(prompts, "prompts")
    items = [sampling_pb2.ScoreItem(prompt=prompt) for prompt in prompts_to_proto(prompts)]
    if completions is None:
        return items
    if not hasattr(completions, "__len__"):
        raise TypeError(f"completions is {shown(completions)}; it takes text, token ids, or a list with one a prompt")
    alone = one and (len(completions) == 0 or is_one_prompt(completions, "completions"))
    wants = "a list with one a prompt, each text or token ids"
    given: Sequence[Any] = [completions] if alone else several(completions, "completions", wants)
    if len(given) != len(items):
        raise ValueError(f"there are {len(items)} prompts and {len(given)} completions; give one a prompt")
    for number, (item, completion) in enumerate(zip(items, given, strict=True)):
        if isinstance(completion, str):
            item.text = encodable(completion, f"completions[{number}]")
        elif completion is not None:
            item.token_ids = token_bytes(completion, f"completions[{number}]")
    return items


def generate_from_proto(response: sampling_pb2.GenerateResponse) -> GenerateResult:
    """A unary result."""
    results = tuple(
        PromptResult(prompt_from_proto(result.prompt), tuple(completion_from_proto(c) for c in result.completions))
        for result in response.results
    )
    return GenerateResult(results, params_from_proto(response.params), usage_from_proto(response.usage))


def completion_from_proto(message: sampling_pb2.Completion) -> Completion:
    """One completion."""
    log_probs, top = _log_probs(message, "log_probs")
    return Completion(
        index=message.index,
        text=message.text,
        token_ids=int32_from_bytes(message.token_ids),
        log_probs=log_probs,
        top_log_probs=top,
        weight_spans=spans_from_proto(message.weight_spans),
        finish_reason=enum_from_proto(FinishReason, sampling_pb2.FinishReason, message.finish_reason),
        stop_reason=stop_from_proto(message.stop_reason),
    )


def deltas_from_proto(message: sampling_pb2.StreamDelta) -> list[StreamDelta]:
    """One delta a completion."""
    deltas = []
    for part in message.completions:
        log_probs, top = _log_probs(part, "log_probs")
        deltas.append(
            StreamDelta(
                index=part.index,
                first_token_index=part.first_token_index,
                text=part.text,
                token_ids=int32_from_bytes(part.token_ids),
                log_probs=log_probs,
                top_log_probs=top,
                weight_spans=spans_from_proto(part.weight_spans),
            )
        )
    return deltas


def prompt_from_proto(message: sampling_pb2.PromptInfo) -> PromptInfo:
    """What is known of a prompt."""
    log_probs, top = _log_probs(message, "log_probs")
    return PromptInfo(int32_from_bytes(message.token_ids), message.num_cached_tokens, log_probs, top)


def scores_from_proto(response: sampling_pb2.LogProbsResponse) -> list[Score]:
    """One score an item."""
    scores = []
    for score in response.scores:
        values, top = token_log_probs(score.completion_log_probs)
        ids = int32_from_bytes(score.completion_token_ids)
        scores.append(Score(prompt_from_proto(score.prompt), ids, values, top, score.weight_version))
    return scores


def _log_probs(message: Any, field: str) -> tuple[Float32Array | None, TopLogProbs | None]:
    return token_log_probs(getattr(message, field)) if message.HasField(field) else (None, None)


def token_log_probs(message: sampling_pb2.TokenLogProbs) -> tuple[Float32Array, TopLogProbs | None]:
    """float32 [T] and, where alternatives were asked for, their [T, k]."""
    values = float32_from_bytes(message.values)
    if message.top_k == 0:
        return values, None
    shape = (len(values), message.top_k)
    ids, tops = int32_from_bytes(message.top_token_ids), float32_from_bytes(message.top_values)
    return values, TopLogProbs(ids.reshape(shape), tops.reshape(shape))


def spans_from_proto(spans: Iterable[sampling_pb2.WeightSpan]) -> tuple[WeightSpan, ...]:
    """Which weights sampled which tokens."""
    return tuple(WeightSpan(span.version, span.start, span.end) for span in spans)


def stop_from_proto(message: sampling_pb2.StopReason) -> str | int | None:
    """A stop string, a stop token id, or None."""
    kind = message.WhichOneof("reason")
    return None if kind is None else getattr(message, kind)


def usage_from_proto(message: sampling_pb2.Usage) -> Usage:
    """Token counts."""
    return Usage(message.prompt_tokens, message.completion_tokens, message.cached_tokens)


def memory_from_proto(message: sampling_pb2.MemoryChange, changed: bool) -> MemoryChange:
    """Memory around an operation."""
    return MemoryChange(message.before_bytes, message.after_bytes, changed)
