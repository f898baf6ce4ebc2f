"""Attention over packed rows: exact, on any device, with torch's own kernels.

A dense mask over a pack costs the square of its tokens, nearly all of it for pairs that must not see each
other. Here the segments of a pack are gathered into small padded batches of like size, and each batch is
one call of scaled_dot_product_attention. A segment with a prefix (a prompt that several rows share)
also gets the prefix's keys. Registered with transformers under the name IMPLEMENTATION.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface

from gradwire.server.engines.deepspeed.packing import Segments
from gradwire.server.errors import Unimplemented

IMPLEMENTATION = "gradwire_packed"

# Lengths are rounded up to this grid when segments are put together, so padding stays below a half.
_GRID = np.array(sorted({base << shift for base in (16, 24) for shift in range(20)}))


@dataclass(frozen=True, slots=True)
class Bucket:
    """B segments of like size: Lq queries each, Lk keys each, padding included."""

    queries: Tensor  # int64 [B * Lq] packed positions
    keys: Tensor  # int64 [B * Lk]
    shape: tuple[int, int, int]  # B, Lq, Lk
    query_length: Tensor  # int64 [B, 1]
    key_length: Tensor  # int64 [B, 1]
    plain: bool  # no padding, no prefix: causal needs no mask


class PackedLayout:
    """What every layer needs to attend within a pack. Made once for a micro-batch."""

    def __init__(self, segments: Segments, num_tokens: int, device: torch.device) -> None:
        self.buckets, self.inverse = _bucketed(segments, num_tokens, device)
        self._masks: dict[int | None, list[Tensor | None]] = {}

    def masks(self, window: int | None) -> list[Tensor | None]:
        """bool [B, 1, Lq, Lk] of each bucket, None where plain causal attention does."""
        if window not in self._masks:
            self._masks[window] = [_mask(bucket, window) for bucket in self.buckets]
        return self._masks[window]


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    packing: PackedLayout | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface. query [1, H, T, D], key and value [1, Hkv, T, D] -> [1, T, H, D].

    Without `packing`, plain causal attention over each row of the batch.
    """
    if softcap is not None or s_aux is not None:
        raise Unimplemented(
            "MODEL_UNSUPPORTED", "its attention has soft-capping or sinks, which packed rows do not have; Llama-like do"
        )
    groups = query.shape[1] // key.shape[1]
    if packing is None:
        key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
        seen = None
        if sliding_window is not None and sliding_window < query.shape[2]:
            at = torch.arange(query.shape[2], device=query.device)
            seen = (at <= at.unsqueeze(-1)) & (at.unsqueeze(-1) - at < sliding_window)
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=seen, is_causal=seen is None, scale=scaling)
        return out.transpose(1, 2), None
    q, k, v = query[0], key[0], value[0]
    parts = []
    for bucket, mask in zip(packing.buckets, packing.masks(sliding_window), strict=True):
        count, lq, lk = bucket.shape
        bq = q.index_select(1, bucket.queries).unflatten(1, (count, lq)).transpose(0, 1)
        bk, bv = (
            x.index_select(1, bucket.keys).unflatten(1, (count, lk)).transpose(0, 1).repeat_interleave(groups, 1)
            for x in (k, v)
        )
        out = F.scaled_dot_product_attention(bq, bk, bv, attn_mask=mask, is_causal=mask is None, scale=scaling)
        parts.append(out.transpose(1, 2).reshape(count * lq, *out.shape[1::2]))
    joined = parts[0] if len(parts) == 1 else torch.cat(parts)
    return joined.index_select(0, packing.inverse).unsqueeze(0), None


AttentionInterface.register(IMPLEMENTATION, packed_attention)


def _bucketed(segments: Segments, num_tokens: int, device: torch.device) -> tuple[list[Bucket], Tensor]:
    totals = segments.prefix_length + segments.length
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, (own, total) in enumerate(zip(segments.length, totals, strict=True)):
        alike[(int(np.searchsorted(_GRID, own)), int(np.searchsorted(_GRID, total)))].append(index)
    inverse = np.zeros(num_tokens, np.int64)
    buckets, base = [], 0
    for members in alike.values():
        own, total = segments.length[members], totals[members]
        lq, lk = int(own.max()), int(total.max())
        # Padding repeats position 0: its keys are masked, its queries' output is never read.
        queries = np.zeros((len(members), lq), np.int64)
        keys = np.zeros((len(members), lk), np.int64)
        for line, index in enumerate(members):
            at, length = int(segments.start[index]), int(segments.length[index])
            before, shared = int(segments.prefix_start[index]), int(segments.prefix_length[index])
            run = np.arange(at, at + length)
            queries[line, :length] = run
            keys[line, :shared] = np.arange(before, before + shared)
            keys[line, shared : shared + length] = run
            inverse[run] = base + line * lq + np.arange(length)
        base += queries.size
        buckets.append(
            Bucket(
                queries=torch.from_numpy(queries.reshape(-1)).to(device),
                keys=torch.from_numpy(keys.reshape(-1)).to(device),
                shape=(len(members), lq, lk),
                query_length=torch.from_numpy(own).unsqueeze(1).to(device),
                key_length=torch.from_numpy(total).unsqueeze(1).to(device),
                plain=bool((own == lq).all() and (total == lq).all()),
            )
        )
    return buckets, torch.from_numpy(inverse).to(device)


def _mask(bucket: Bucket, window: int | None) -> Tensor | None:
    _, lq, lk = bucket.shape
    if bucket.plain and (window is None or window >= lk):
        return None
    device = bucket.queries.device
    # A key's index in its list is its position in the row, and the queries are the list's last entries.
    at = torch.arange(lq, device=device) + (bucket.key_length - bucket.query_length)  # [B, Lq]
    key = torch.arange(lk, device=device)
    allowed = key <= at.unsqueeze(-1)
    if window is not None:
        allowed &= at.unsqueeze(-1) - key < window
    allowed &= (key < bucket.key_length).unsqueeze(1)
    # A row of a mask without any key would be NaN, also in the gradient of the padding.
    allowed |= (torch.arange(lq, device=device) >= bucket.query_length).unsqueeze(-1) & (key == 0)
    return allowed.unsqueeze(1)
