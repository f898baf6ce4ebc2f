"""Sampling parameters as callers give them: what is left out comes from a deployment, or from the defaults.

`given` maps names of SamplingParams' fields to checked values: the codec, or a door, has seen to types and ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from gradwire.server.engines.sampling import SamplingParams
from gradwire.server.errors import FieldViolation, InvalidArgument

UNLIMITED = 2**31 - 1
"""`max_tokens` when it is not given: the engine cuts it to what the context still holds."""
NO_DEFAULTS = ("n", "log_probs", "prompt_log_probs", "logit_bias", "structured")
"""Fields that a deployment cannot give a default of."""
_DEFAULTS = SamplingParams(max_tokens=UNLIMITED)
_NAMES = frozenset(field.name for field in fields(SamplingParams))


def resolve(given: Mapping[str, Any], *, max_log_probs: int, path: str = "params") -> SamplingParams:
    """Parameters with the defaults applied. Raises InvalidArgument where fields contradict each other."""
    params = replace(_DEFAULTS, **given)
    bad: list[FieldViolation] = []
    if params.n > 1 and params.temperature == 0:
        bad.append(FieldViolation(f"{path}.n", f"is {params.n} at temperature 0, where all completions are the same"))
    if params.min_tokens > params.max_tokens:
        bad.append(
            FieldViolation(f"{path}.min_tokens", f"is {params.min_tokens}, above max_tokens ({params.max_tokens})")
        )
    for name in ("log_probs", "prompt_log_probs"):
        value = getattr(params, name)
        if value is not None and value > max_log_probs:
            bad.append(FieldViolation(f"{path}.{name}", f"is {value}; this job gives at most {max_log_probs}"))
    if bad:
        raise InvalidArgument(bad)
    return params


def check_defaults(given: Mapping[str, Any], path: str) -> None:
    """Raises InvalidArgument when a deployment cannot have these as its requests' defaults."""
    for name in given:
        if name in NO_DEFAULTS or name not in _NAMES:
            shown = "structured_output" if name == "structured" else name
            raise InvalidArgument.at(f"{path}.{shown}", "cannot be a deployment's default; give it with each request")
    resolve(given, max_log_probs=0, path=path)
