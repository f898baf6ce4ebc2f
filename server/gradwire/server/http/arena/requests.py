"""The bodies of the calls, read and checked. Field paths in errors are the wire's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

from gradwire.server.domain.inference import ActionRequest
from gradwire.server.engines.acting import Value
from gradwire.server.errors import InvalidArgument
from gradwire.server.http.arena.values import first_rows, read_value
from gradwire.server.http.json_body import check_characters, check_escapes, json_object

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TextCall:
    """Prompts, and how to answer them. `params` are SamplingParams' fields by name."""

    prompts: tuple[str, ...]
    params: Mapping[str, Any]
    session_id: str | None


def parsed(data: bytes, parse: Callable[[Mapping[str, Any]], T]) -> T:
    """A body, as `parse` makes it of a JSON object; raises InvalidArgument."""
    body = json_object(data)
    made = parse(body)  # first, as it knows where things are
    check_escapes(data, body)
    return made


def action_request(body: Mapping[str, Any]) -> ActionRequest:
    """Of `POST /get_action`. What is not given stays None."""
    check_names(body, "obs", "batch_size", "hidden_state", "action_mask", "env_defined_actions")
    observation = read_value(required(body, "obs"), "obs")
    rows, said = first_rows(observation, "obs"), body.get("batch_size")
    if said is not None and (type(said) is not int or said != rows):
        raise InvalidArgument.at("batch_size", f"is {str(said)[:40]}, but the first array of obs has {rows} rows")
    return ActionRequest(
        observation,
        batched=True,
        hidden_state=read_value(body.get("hidden_state"), "hidden_state"),
        action_mask=read_value(body.get("action_mask"), "action_mask"),
        env_defined_actions=read_value(body.get("env_defined_actions"), "env_defined_actions"),
    )


def predict_inputs(body: Mapping[str, Any]) -> Value:
    """Of `POST /predict`."""
    check_names(body, "inputs", "batch_size")
    inputs = read_value(required(body, "inputs"), "inputs")
    first_rows(inputs, "inputs")
    return inputs


def text_call(body: Mapping[str, Any], *, streamed: bool) -> TextCall:
    """Of `POST /generate`, or `/generate_stream`, which takes one prompt."""
    name = "prompt" if streamed else "prompts"
    check_names(body, name, "params", "session_id")
    given = required(body, name)
    prompts = [given] if streamed else given
    if not isinstance(prompts, list) or not prompts:
        raise InvalidArgument.at(name, "must be a list of one or more strings")
    for index, prompt in enumerate(prompts):
        at = name if streamed else f"prompts[{index}]"
        if not isinstance(prompt, str) or not prompt.strip():
            raise InvalidArgument.at(at, "must be a string that is not blank")
        check_characters(prompt, at)
    session_id = body.get("session_id")
    if session_id is not None and (not isinstance(session_id, str) or not session_id.strip()):
        raise InvalidArgument.at(
            "session_id", "must be a string that is not blank; leave it out for a new conversation"
        )
    return TextCall(tuple(prompts), _params(body.get("params")), session_id.strip() if session_id else None)


_DEFAULTS: Mapping[str, Any] = {"max_new_tokens": 100, "temperature": 0.7, "top_p": 0.9, "do_sample": True}
_NUMBERS = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
_INTEGERS = ("max_new_tokens", "min_tokens", "top_k", "seed")
_FLAGS = ("do_sample", "ignore_eos", "include_stop_str_in_output", "skip_special_tokens")
_KNOWN = (*_NUMBERS, *_INTEGERS, *_FLAGS, "stop")


def _params(given: Any) -> dict[str, Any]:
    """The documented four, and what else a sampler can do, as SamplingParams."""
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise InvalidArgument.at("params", f"is a JSON {type(given).__name__}; it must be an object")
    params: dict[str, Any] = {**_DEFAULTS, **{name: value for name, value in given.items() if value is not None}}
    for name, value in params.items():
        _check_param(name, value)
    params |= {name: int(params[name]) for name in _INTEGERS if name in params}
    stop = params.pop("stop", [])
    params["stop"] = [stop] if isinstance(stop, str) else stop
    params["max_tokens"] = params.pop("max_new_tokens")
    if not params.pop("do_sample"):
        params["temperature"] = 0.0
    return params


def _check_param(name: str, value: Any) -> None:
    path, number = f"params.{name}", isinstance(value, int | float) and not isinstance(value, bool)
    if name in _NUMBERS and not number:
        raise InvalidArgument.at(path, f"must be a number, got {str(value)[:40]!r}")
    if name in _INTEGERS and (not number or int(value) != value):
        raise InvalidArgument.at(path, f"must be a whole number, got {str(value)[:40]!r}")
    if name in _FLAGS and not isinstance(value, bool):
        raise InvalidArgument.at(path, f"must be true or false, got {str(value)[:40]!r}")
    if name == "stop":
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InvalidArgument.at(path, "must be a string or a list of strings")
        for text in texts:
            check_characters(text, path)
    elif name not in _KNOWN:
        raise _unknown(path, name, _KNOWN)


def check_names(body: Mapping[str, Any], *known: str) -> None:
    """Raises InvalidArgument for a field that is not among these."""
    for name in body:
        if name not in known:
            raise _unknown(name, name, known)


def _unknown(path: str, name: str, known: tuple[str, ...]) -> InvalidArgument:
    near = get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(known)}"
    return InvalidArgument.at(path[:80], f"is not known; {hint}")


def required(body: Mapping[str, Any], name: str) -> Any:
    """The field; raises InvalidArgument when it is missing."""
    if body.get(name) is None:
        raise InvalidArgument.at(name, "is required")
    return body[name]
