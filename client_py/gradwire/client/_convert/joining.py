"""Joins a stream's deltas into the completions that a unary call would have returned.

Knows: order, gaps and weight spans. A gap in the tokens is an error: nothing may be lost unseen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from gradwire.client._convert.enums import enum_from_proto
from gradwire.client._convert.sampling import stop_from_proto
from gradwire.client.errors import DataLossError
from gradwire.client.types.sampling import Completion, FinishReason, StreamDelta, TopLogProbs, WeightSpan
from gradwire.v1 import sampling_pb2


class Joiner:
    """Collects deltas by completion."""

    def __init__(self) -> None:
        self._deltas: defaultdict[int, list[StreamDelta]] = defaultdict(list)
        self._num_tokens: defaultdict[int, int] = defaultdict(int)

    def add(self, delta: StreamDelta) -> None:
        """Takes the next delta. DataLossError when tokens before it are missing."""
        expected = self._num_tokens[delta.index]
        if delta.first_token_index != expected:
            raise DataLossError(
                f"completion {delta.index} goes on at token {delta.first_token_index}, but token {expected} was "
                "expected: tokens of the stream were lost"
            )
        self._num_tokens[delta.index] += len(delta.token_ids)
        self._deltas[delta.index].append(delta)

    def completions(self, ends: Iterable[sampling_pb2.CompletionEnd]) -> tuple[Completion, ...]:
        """The whole completions, by index."""
        return tuple(self._completion(end) for end in ends)

    def _completion(self, end: sampling_pb2.CompletionEnd) -> Completion:
        deltas = self._deltas[end.index]
        if self._num_tokens[end.index] != end.num_tokens:
            raise DataLossError(
                f"completion {end.index} has {end.num_tokens} tokens, but {self._num_tokens[end.index]} arrived"
            )
        tops = [delta.top_log_probs for delta in deltas if delta.top_log_probs is not None]
        return Completion(
            index=end.index,
            text="".join(delta.text for delta in deltas),
            token_ids=_joined([delta.token_ids for delta in deltas], np.int32),
            log_probs=_maybe_joined([d.log_probs for d in deltas if d.log_probs is not None]),
            top_log_probs=_joined_tops(tops),
            weight_spans=_merged(span for delta in deltas for span in delta.weight_spans),
            finish_reason=enum_from_proto(FinishReason, sampling_pb2.FinishReason, end.finish_reason),
            stop_reason=stop_from_proto(end.stop_reason),
        )


def _joined(arrays: list[Any], dtype: type) -> Any:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype)


def _maybe_joined(arrays: list[Any]) -> Any:
    return np.concatenate(arrays) if arrays else None


def _joined_tops(tops: list[TopLogProbs]) -> TopLogProbs | None:
    if not tops:
        return None
    return TopLogProbs(np.concatenate([t.token_ids for t in tops]), np.concatenate([t.log_probs for t in tops]))


def _merged(spans: Iterable[WeightSpan]) -> tuple[WeightSpan, ...]:
    merged: list[WeightSpan] = []
    for span in spans:
        if merged and merged[-1].version == span.version and merged[-1].end == span.start:
            merged[-1] = WeightSpan(span.version, merged[-1].start, span.end)
        else:
            merged.append(span)
    return tuple(merged)
