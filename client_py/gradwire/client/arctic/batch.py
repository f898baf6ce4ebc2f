"""The batches of the ArcticRL document, as columns of a TrainingBatch.

Knows: both forms of a batch ({"args", "kwargs", "context"} as documented, and {"batch", "meta", "processing"}), and
where each key goes. Does not know: what a column's values mean to a loss.

Everything is on the shifted grid: entry i of a column belongs to the prediction of token i + 1. `response_mask`
alone marks tokens where they stand, and is shifted here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from gradwire.client._convert.nearest import check_names
from gradwire.client._convert.tensors import Array, elements, is_torch
from gradwire.client.types.training import TrainingBatch

_FORMS = ("args", "kwargs", "context", "batch", "meta", "processing")
_COLUMNS = tuple(column.name for column in fields(TrainingBatch))
_PLACES = ("input_ids", "attention_mask", "position_ids")
_MODEL_KEYS = (*_PLACES, "use_cache", "return_dict", "output_hidden_states", "output_attentions")
# Payload names without the suffix: all of a payload's tensors are on the shifted grid as well.
_PAYLOAD_NAMES = {
    "old_log_probs": "old_log_probs_shifted",
    "prox_logp": "prox_logp_shifted",
    "ref_log_prob": "ref_log_probs_shifted",
    "ref_log_probs": "ref_log_probs_shifted",
}
_PAYLOAD = (*_COLUMNS, *_PAYLOAD_NAMES, "position_ids", "prompts", "responses", "response_mask")
_USED_META = ("temperature", "calculate_entropy", "return_fwd_batch", "global_batch_size", "batch_num_tokens")
# Ways of computing the same numbers.
_MOOT_META = frozenset(
    {
        "pad_token_id", "max_prompt_len", "max_response_len", "rollout_n", "max_token_len_per_gpu", "drop_position_ids",
        "zorro_train_enable", "zorro_train_max_rollouts", "load_balancer", "logits_optimization", "dp_size",
        "logits_optimization_peak_mem_size_in_gib",
    }
)  # fmt: skip
_LOSS_META = ("actor_config", "policy_loss_config")


@dataclass(slots=True)
class DecodedBatch:
    """A batch taken apart."""

    columns: dict[str, Any]
    """Of a TrainingBatch."""
    meta: dict[str, Any] = field(default_factory=dict)
    """Options that the batch carries: temperature, calculate_entropy, and so on."""
    processing: Mapping[str, Any] | None = None
    """A processing descriptor that the batch carries."""
    warnings: list[str] = field(default_factory=list)

    def like_input(self, rows: Any) -> Any:
        """float32 `rows` as the caller's input_ids are: torch (on the CPU) or numpy."""
        given = self.columns["input_ids"]
        if isinstance(given, list | tuple) and given:
            given = given[0]
        if not is_torch(given):
            return rows
        # Found, never imported: whoever holds a tensor has imported torch.
        from_numpy = sys.modules["torch"].from_numpy
        return [from_numpy(row) for row in rows] if isinstance(rows, list) else from_numpy(rows)


def decode_batch(batch: object) -> DecodedBatch:
    """`batch` in either form. ValueError names a key that is unknown, and the nearest that is known."""
    if not isinstance(batch, Mapping):
        raise ValueError(f'batch is a {type(batch).__name__}; it is a dict of "args", "kwargs" and "context"')
    check_names("batch key", batch, _FORMS)
    if "batch" in batch and ("args" in batch or "kwargs" in batch):
        raise ValueError('batch has both "batch" and "args" or "kwargs"; the first is a form of its own')
    if "batch" in batch:
        columns, warnings = _payload(_mapping(batch["batch"], "batch.batch")), list[str]()
    else:
        columns, warnings = _model_inputs(batch.get("args"), batch.get("kwargs"))
    context = _mapping(batch.get("context"), "batch.context")
    check_names("batch.context key", context, [name for name in _COLUMNS if name not in _PLACES])
    columns.update({key: value for key, value in context.items() if value is not None})
    if columns.get("input_ids") is None:
        raise ValueError('batch has no input_ids; they are the first of "args"')
    decoded = DecodedBatch(columns, processing=batch.get("processing"), warnings=list(warnings))
    _meta(_mapping(batch.get("meta"), "batch.meta"), decoded)
    return decoded


def _model_inputs(args: object, kwargs: object) -> tuple[dict[str, Any], list[str]]:
    positional = [] if args is None else args
    if not isinstance(positional, Sequence) or isinstance(positional, str) or len(positional) > len(_PLACES):
        raise ValueError(f"batch.args is a list of at most {len(_PLACES)}: {', '.join(_PLACES)}")
    given = _mapping(kwargs, "batch.kwargs")
    check_names("batch.kwargs key", given, _MODEL_KEYS)
    columns = dict(zip(_PLACES, positional, strict=False))
    for key in _PLACES:
        if key in given and key in columns:
            raise ValueError(f"batch has {key} in args and in kwargs; give it once")
    columns.update({key: given[key] for key in _PLACES if key in given})
    warnings = [
        f"batch.kwargs.{key} has no effect: a pass returns log-probs and entropies"
        for key in _MODEL_KEYS[3:]
        if given.get(key) and key != "return_dict"
    ]
    _drop_positions(columns)
    return {key: value for key, value in columns.items() if value is not None}, warnings


def _payload(values: Mapping[str, Any]) -> dict[str, Any]:
    check_names("batch.batch key", values, _PAYLOAD)
    columns: dict[str, Any] = {}
    for key, value in values.items():
        name = _PAYLOAD_NAMES.get(key, key)
        if value is None:
            continue
        if name in columns:
            raise ValueError(f"batch.batch has {name} under two names; give it once")
        columns[name] = value
    width = _check_parts(columns)
    response_mask = columns.pop("response_mask", None)
    if response_mask is not None and "loss_mask" not in columns:
        columns["loss_mask"] = _shifted_mask(response_mask, width)
    _drop_positions(columns)
    return columns


def _check_parts(columns: dict[str, Any]) -> int | None:
    """Takes prompts and responses out: they are input_ids once more. Returns the width of input_ids."""
    prompts, responses = columns.pop("prompts", None), columns.pop("responses", None)
    ids = columns.get("input_ids")
    width = None if ids is None or isinstance(ids, list | tuple) else int(ids.shape[-1])
    if width is not None and prompts is not None and responses is not None:
        parts = (int(prompts.shape[-1]), int(responses.shape[-1]))
        if sum(parts) != width:
            raise ValueError(
                f"batch.batch: prompts and responses are {parts[0]} and {parts[1]} wide, input_ids are {width}"
            )
    return width


def _shifted_mask(mask: Any, width: int | None) -> Array:
    """`response_mask` [B, S], or [B, R] for the last R tokens, on the shifted grid."""
    array = elements(mask, "batch.batch.response_mask").array
    if array.ndim != 2 or width is None or array.shape[1] > width:
        raise ValueError("batch.batch.response_mask is [B, S] like input_ids, or [B, R] for their last R tokens")
    shifted = np.zeros((array.shape[0], width), array.dtype)
    # Token j is predicted at entry j - 1; the first token of all is predicted nowhere.
    start = width - array.shape[1]
    source = array if start > 0 else array[:, 1:]
    shifted[:, max(start - 1, 0) : width - 1] = source
    return shifted


def _drop_positions(columns: dict[str, Any]) -> None:
    """Takes position_ids out. They follow from the mask; ValueError when they say otherwise."""
    positions = columns.pop("position_ids", None)
    if positions is None or columns.get("input_ids") is None:
        return
    given = elements(positions, "position_ids").array
    shape = elements(columns["input_ids"], "input_ids").array.shape
    mask = columns.get("attention_mask")
    real = np.ones(shape, np.int64) if mask is None else elements(mask, "attention_mask").array.astype(np.int64)
    expected = real.cumsum(axis=-1) - 1
    if given.shape != shape or real.shape != shape or not np.array_equal(given[real > 0], expected[real > 0]):
        raise ValueError(
            "position_ids count each row's real tokens from 0, which the server does by itself; these say otherwise. "
            "Leave them out"
        )


def _meta(meta: Mapping[str, Any], decoded: DecodedBatch) -> None:
    check_names("batch.meta key", meta, (*_USED_META, *_LOSS_META, *_MOOT_META))
    decoded.meta.update({key: meta[key] for key in _USED_META if meta.get(key) is not None})
    decoded.warnings += [
        f"batch.meta.{key} has no effect: the loss is told its options in processing.config"
        for key in _LOSS_META
        if meta.get(key)
    ]


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} is a {type(value).__name__}; it is a dict")
    return value
