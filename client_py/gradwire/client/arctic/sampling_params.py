"""vLLM's names of sampling parameters, and ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from gradwire.client._convert.nearest import unknown_name
from gradwire.client.types.sampling import SamplingParams

_OURS = tuple(field.name for field in fields(SamplingParams))
_NAMES = {"logprobs": "log_probs", "prompt_logprobs": "prompt_log_probs"}
# vLLM's, at the values that ask for nothing.
_MOOT = {"detokenize": True, "spaces_between_special_tokens": True, "output_kind": None, "best_of": None}


def read_params(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Fields of SamplingParams. ValueError names an unknown one and the nearest that is known."""
    params: dict[str, Any] = {}
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(f"sampling_params is a {type(given).__name__}; it is a dict such as {{'max_tokens': 100}}")
    for key, value in (given or {}).items():
        if key in _MOOT and value in (None, _MOOT[key]):
            continue
        name = _NAMES.get(key, key)
        if name not in _OURS:
            raise ValueError(unknown_name("sampling_params", key, (*_OURS, *_NAMES)))
        if name in params:
            raise ValueError(f"sampling_params has {name} under two names; give it once")
        params[name] = value
    if params.get("top_k") == -1:  # vLLM's word for all tokens
        params["top_k"] = 0
    return params
