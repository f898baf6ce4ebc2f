"""What a request body means before the engine sees it.

`openai`, the default profile: what OpenAI's clients expect; vLLM's own extensions are understood, other unknown fields
are passed over. `documented`: the table of the agentic API's document, with its ranges and its defaults, which
differ (temperature 0.2, top_k 50, 128 tokens, log-probs on); a field that the table does not have is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gradwire.server.engines.openai import Endpoint
from gradwire.server.errors import FieldViolation, InvalidArgument

DOCUMENTED = "documented"
PROFILES = ("openai", DOCUMENTED)
# What clients send by themselves, whatever their user asked for; and ids of tokens, for those who train on them.
_TOLERATED = frozenset({"model", "model_name", "stream", "stream_options", "user", "stop", "return_token_ids"})
_NO_DETOKENIZE = "detokenize"  # text is always given: the document's own examples read it


@dataclass(frozen=True, slots=True)
class _Number:
    """A field of the table: whole or not, from `low` to `high`."""

    low: float
    high: float
    default: float | None
    whole: bool = False

    def problem(self, name: str, value: Any) -> str:
        kind = "an integer" if self.whole else "a number"
        right = isinstance(value, int if self.whole else (int, float)) and not isinstance(value, bool)
        if not right or not math.isfinite(value):
            return f"Field '{name}' must be {kind}, got {type(value).__name__}"
        if not self.low <= value <= self.high:
            if self.high == math.inf:
                return f"Field '{name}' must be {kind} >= {self.low:g}, got {value}"
            return f"Field '{name}' must be {kind} between {self.low:g} and {self.high:g}, got {value}"
        return ""


_TABLE: Mapping[str, _Number] = {
    "n": _Number(1, math.inf, 1, whole=True),
    "top_k": _Number(0, math.inf, 50, whole=True),
    "logprobs": _Number(0, math.inf, 1, whole=True),
    "min_p": _Number(0, 1, 0.0),
    "frequency_penalty": _Number(-2, 2, 0.0),
    "max_tokens": _Number(1, 64_000, 128, whole=True),
    "min_tokens": _Number(0, 64_000, 0, whole=True),
    "presence_penalty": _Number(-2, 2, 0.0),
    "seed": _Number(-65_535, 65_535, None, whole=True),
    "temperature": _Number(0, 2, 0.2),
    "top_p": _Number(1e-8, 1, None),
}
_ROLES = ("system", "user", "assistant", "tool")


def openai(endpoint: Endpoint, body: Mapping[str, Any]) -> dict[str, Any]:
    """A null stands for a field that is not given: clients send both."""
    return {name: value for name, value in body.items() if value is not None}


def documented(endpoint: Endpoint, body: Mapping[str, Any]) -> dict[str, Any]:
    """The body with the document's defaults; raises InvalidArgument for what its table does not allow."""
    given = openai(endpoint, body)
    chat = endpoint is Endpoint.CHAT_COMPLETIONS
    text = "messages" if chat else "prompt"
    known = {*_TABLE, *_TOLERATED, _NO_DETOKENIZE, text}
    found = [
        FieldViolation(name, problem)
        for name, rule in _TABLE.items()
        if name in given and (problem := rule.problem(name, given[name]))
    ]
    if unknown := sorted(set(given) - known):
        found.append(FieldViolation(unknown[0], f"Unrecognized field(s) in request: {', '.join(unknown)}"))
    if not isinstance(given.get(_NO_DETOKENIZE, False), bool):
        found.append(FieldViolation(_NO_DETOKENIZE, f"Field '{_NO_DETOKENIZE}' must be true or false"))
    found += _messages(given) if chat else _prompt(given)
    defaults = {name: rule.default for name, rule in _TABLE.items() if rule.default is not None}
    whole: dict[str, Any] = {**defaults, **given}
    if not found and whole["min_tokens"] > whole["max_tokens"]:
        text = f"Field 'min_tokens' must be at most max_tokens, {whole['max_tokens']}, got {whole['min_tokens']}"
        found.append(FieldViolation("min_tokens", text))
    if found:
        raise InvalidArgument(found)
    return _in_openais_terms(whole, chat=chat)


def _prompt(given: Mapping[str, Any]) -> list[FieldViolation]:
    if "prompt" not in given:
        return [FieldViolation("prompt", "Missing required field: 'prompt'")]
    if not isinstance(given["prompt"], str) or not given["prompt"]:
        return [FieldViolation("prompt", "Field 'prompt' must be a non-empty string")]
    return []


def _messages(given: Mapping[str, Any]) -> list[FieldViolation]:
    messages = given.get("messages")
    if not isinstance(messages, list) or not messages:
        return [FieldViolation("messages", "Field 'messages' must be a non-empty list")]
    found = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            found.append(FieldViolation(f"messages[{index}].role", f"must be one of {', '.join(_ROLES)}"))
        elif not isinstance(message.get("content"), str) or not message["content"]:
            found.append(FieldViolation(f"messages[{index}].content", "must be a non-empty string"))
    return found


def _in_openais_terms(body: dict[str, Any], *, chat: bool) -> dict[str, Any]:
    body.pop(_NO_DETOKENIZE, None)
    log_probs = body.pop("logprobs")
    if log_probs and chat:
        body.update(logprobs=True, top_logprobs=log_probs)
    elif log_probs:  # 0 is none here, and the sampled token's own to vLLM
        body["logprobs"] = log_probs
    return body


READERS: Mapping[str, Callable[[Endpoint, Mapping[str, Any]], dict[str, Any]]] = {
    "openai": openai,
    DOCUMENTED: documented,
}
