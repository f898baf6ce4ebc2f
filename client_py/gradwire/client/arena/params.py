"""LLMParams, an agent's own and a call's, as one set of gradwire's sampling parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import NoneType
from typing import Any

from gradwire.client._convert.nearest import check_names
from gradwire.client._core.arguments import check
from gradwire.client.arena.models import LLMParams
from gradwire.client.types.sampling import SamplingParams

_OTHERS = {field.name for field in fields(SamplingParams)} - {"n", "prompt_log_probs"}
_FILTERS = ("top_p", "top_k", "min_p")


def sampling_params(base: LLMParams, override: LLMParams | Mapping[str, Any] | None) -> dict[str, Any]:
    """`base`, with what `override` sets. A dict may hold any of gradwire's sampling parameters too.

    TypeError names the key nearest to an unknown one, and two keys of one meaning.
    """
    check(base, "generate_params", LLMParams, "an LLMParams")
    check(override, "params", (LLMParams, Mapping, NoneType), "an LLMParams or a dict")
    given = override.model_dump(exclude_unset=True) if isinstance(override, LLMParams) else dict(override or {})
    check_names("params key", given, _OTHERS | set(LLMParams.model_fields), TypeError)
    if {"max_tokens", "max_new_tokens"} <= given.keys():
        raise TypeError("params: max_tokens and max_new_tokens are the same; give one of them")
    merged = {name: value for name, value in {**base.model_dump(), **given}.items() if value is not None}
    max_new_tokens = merged.pop("max_new_tokens", None)
    if max_new_tokens is not None:
        merged.setdefault("max_tokens", max_new_tokens)
    if not merged.pop("do_sample", True):
        merged = {name: value for name, value in merged.items() if name not in _FILTERS} | {"temperature": 0.0}
    return merged
