"""Bounds of a request body, before anything is built from it. Types are the serving classes' to check."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gradwire.server.engines.vllm import schemas
from gradwire.server.errors import FieldViolation, InvalidArgument

_MOST = {"n": 1024, "best_of": 1024, "max_tokens": 2**31 - 1, "max_completion_tokens": 2**31 - 1}
_LONGEST = {"stop": 64, "stop_token_ids": 1024, "bad_words": 1024, "tools": 256, "messages": 4096, "logit_bias": 1024}
_MAX_PROMPTS = 4096
_MAX_COMPLETIONS = 16_384
_MAX_GRAMMAR = 64 << 10  # characters
_GRAMMARS = ("response_format", "structured_outputs")
# vLLM's extensions that read other media, speak to other engines, or go around its scheduler.
_REFUSED = (
    "use_beam_search", "prompt_embeds", "kv_transfer_params", "vllm_xargs", "mm_processor_kwargs", "media_io_kwargs",
    "chat_template", "session_id",
)  # fmt: skip


def check_limits(body: Mapping[str, Any]) -> None:
    """Raises InvalidArgument, one violation for each field that is out of bounds."""
    found = [
        FieldViolation(name, f"is {body[name]}; at most {most}")
        for name, most in _MOST.items()
        if isinstance(body.get(name), int) and body[name] > most
    ]
    found += [
        FieldViolation(name, f"has {len(body[name])} entries; at most {most}")
        for name, most in _LONGEST.items()
        if isinstance(body.get(name), (list, dict)) and len(body[name]) > most
    ]
    found += [FieldViolation(name, "is not supported by this server") for name in _REFUSED if body.get(name)]
    found += [
        FieldViolation(name, f"is longer than {_MAX_GRAMMAR} characters")
        for name in _GRAMMARS
        if body.get(name) and len(json.dumps(body[name])) > _MAX_GRAMMAR
    ]
    found += _schemas(body) + _prompts(body)
    if found:
        raise InvalidArgument(found)


def _schemas(body: Mapping[str, Any]) -> list[FieldViolation]:
    outputs = body.get("structured_outputs")
    fields: dict[str, Any] = {name: body.get(name) for name in ("response_format", "tools")}
    if isinstance(outputs, dict):
        fields |= {f"structured_outputs.{name}": outputs.get(name) for name in ("json", "structural_tag")}
    problems = {field: schemas.problem(value) for field, value in fields.items()}
    if isinstance(outputs, dict) and isinstance(outputs.get("grammar"), str):
        problems["structured_outputs.grammar"] = schemas.grammar_problem(outputs["grammar"])
    return [FieldViolation(field, problem) for field, problem in problems.items() if problem]


def _prompts(body: Mapping[str, Any]) -> list[FieldViolation]:
    prompt, n = body.get("prompt"), body.get("n")
    # A list of numbers is one prompt.
    count = len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1
    if count > _MAX_PROMPTS:
        return [FieldViolation("prompt", f"has {count} prompts; at most {_MAX_PROMPTS}")]
    if isinstance(n, int) and count * n > _MAX_COMPLETIONS:
        return [FieldViolation("n", f"{n} completions of {count} prompts; at most {_MAX_COMPLETIONS} in one call")]
    return []
