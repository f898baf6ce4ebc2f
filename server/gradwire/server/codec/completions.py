"""What was sampled or scored -> messages: whole results, and the events of a stream."""

from __future__ import annotations

from gradwire.server.codec.sampling import (
    encode_completion,
    encode_delta,
    encode_finish,
    encode_log_probs,
    encode_stop,
)
from gradwire.server.domain.sampling import Collected
from gradwire.server.engines.sampling import PromptInfo, SampleEvent, TokenIds
from gradwire.v1 import sampling_pb2


def encode_prompt(tokens: TokenIds, info: PromptInfo | None) -> sampling_pb2.PromptInfo:
    """A prompt, and what the engine says of it, where it has."""
    message = sampling_pb2.PromptInfo(token_ids=tokens.astype("<i4", copy=False).tobytes())
    if info is not None:
        message.num_cached_tokens = info.num_cached_tokens
        log_probs = encode_log_probs(info.log_probs, info.top_log_probs)
        if log_probs is not None:
            message.log_probs.CopyFrom(log_probs)
    return message


def encode_result(tokens: TokenIds, collected: Collected) -> sampling_pb2.PromptResult:
    """A prompt and its completions, whole."""
    return sampling_pb2.PromptResult(
        prompt=encode_prompt(tokens, collected.prompt),
        completions=map(encode_completion, collected.completions),
    )


def encode_score(pair: tuple[TokenIds, TokenIds], info: PromptInfo | None, weight_version: int) -> sampling_pb2.Score:
    """Log-probs of a prompt and a completion, of `info`, which has those of both end to end."""
    prompt, completion = pair
    assert info is not None and info.log_probs is not None
    cut = len(prompt)
    top = info.top_log_probs
    head, tail = (None, None) if top is None else (top.part(0, cut), top.part(cut, None))
    return sampling_pb2.Score(
        prompt=encode_prompt(prompt, PromptInfo(cut, info.num_cached_tokens, info.log_probs[:cut], head)),
        completion_token_ids=completion.astype("<i4", copy=False).tobytes(),
        completion_log_probs=encode_log_probs(info.log_probs[cut:], tail),
        weight_version=weight_version,
    )


def encode_event(event: SampleEvent, end: sampling_pb2.StreamEnd) -> sampling_pb2.StreamDelta | None:
    """An event's tokens, if it has any. Notes in `end` what the end of the stream will say."""
    if event.prompt is not None:
        _note_prompt(end, event.prompt)
    deltas = []
    for delta in event.deltas:
        if len(delta.token_ids) or delta.text:
            deltas.append(encode_delta(delta))
            end.usage.completion_tokens += len(delta.token_ids)
        if delta.finish_reason is not None:
            end.completions.append(
                sampling_pb2.CompletionEnd(
                    index=delta.index,
                    finish_reason=encode_finish(delta.finish_reason),
                    stop_reason=encode_stop(delta.stop_reason),
                    num_tokens=delta.first_token_index + len(delta.token_ids),
                )
            )
    return sampling_pb2.StreamDelta(completions=deltas) if deltas else None


def _note_prompt(end: sampling_pb2.StreamEnd, prompt: PromptInfo) -> None:
    end.usage.cached_tokens = prompt.num_cached_tokens
    log_probs = encode_log_probs(prompt.log_probs, prompt.top_log_probs)
    if log_probs is not None:
        end.prompt_log_probs.CopyFrom(log_probs)
