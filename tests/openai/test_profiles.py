"""The documented profile: its table, its defaults, its words."""

from __future__ import annotations

from typing import Any

import pytest

from gradwire.server.engines.openai import Endpoint
from gradwire.server.errors import InvalidArgument
from gradwire.server.http.openai.profiles import documented, openai

TEXT, CHAT = Endpoint.COMPLETIONS, Endpoint.CHAT_COMPLETIONS
MESSAGES = [{"role": "user", "content": "hi"}]


def test_nulls_are_fields_that_are_not_given() -> None:
    assert openai(TEXT, {"prompt": "a", "seed": None, "logprobs": None, "unknown": 1}) == {"prompt": "a", "unknown": 1}


def test_the_documents_defaults() -> None:
    assert documented(TEXT, {"prompt": "a", "seed": None}) == {
        "prompt": "a", "n": 1, "top_k": 50, "logprobs": 1, "min_p": 0.0, "frequency_penalty": 0.0, "max_tokens": 128,
        "min_tokens": 0, "presence_penalty": 0.0, "temperature": 0.2,
    }  # fmt: skip
    chat = documented(CHAT, {"messages": MESSAGES})
    assert (chat["logprobs"], chat["top_logprobs"]) == (True, 1)


@pytest.mark.parametrize("endpoint", [TEXT, CHAT])
def test_no_log_probs_are_none_at_all(endpoint: Endpoint) -> None:
    text: dict[str, Any] = {"prompt": "a"} if endpoint is TEXT else {"messages": MESSAGES}
    assert not {"logprobs", "top_logprobs"} & set(documented(endpoint, {**text, "logprobs": 0}))


def test_what_clients_send_by_themselves_is_taken_and_detokenize_changes_nothing() -> None:
    body = {"prompt": "a", "model": "m", "stream": False, "detokenize": False}
    assert documented(TEXT, body)["model"] == "m"
    assert "detokenize" not in documented(TEXT, body)


@pytest.mark.parametrize(
    ("body", "field", "text"),
    [
        ({}, "prompt", "Missing required field: 'prompt'"),
        ({"prompt": ""}, "prompt", "non-empty string"),
        ({"prompt": ["a"]}, "prompt", "non-empty string"),
        ({"prompt": "a", "best_of": 2, "echo": True}, "best_of", "Unrecognized field(s) in request: best_of, echo"),
        ({"prompt": "a", "temperature": 2.1}, "temperature", "Field 'temperature' must be a number between 0 and 2"),
        ({"prompt": "a", "temperature": True}, "temperature", "must be a number, got bool"),
        ({"prompt": "a", "temperature": float("nan")}, "temperature", "must be a number"),
        ({"prompt": "a", "top_k": -1}, "top_k", "Field 'top_k' must be an integer >= 0"),
        ({"prompt": "a", "top_k": 1.0}, "top_k", "must be an integer, got float"),
        ({"prompt": "a", "top_p": 0}, "top_p", "between 1e-08 and 1"),
        ({"prompt": "a", "n": 0}, "n", "must be an integer >= 1"),
        ({"prompt": "a", "logprobs": -1}, "logprobs", "must be an integer >= 0"),
        ({"prompt": "a", "min_p": 1.1}, "min_p", "between 0 and 1"),
        ({"prompt": "a", "max_tokens": 64_001}, "max_tokens", "between 1 and 64000"),
        ({"prompt": "a", "min_tokens": -1}, "min_tokens", "between 0 and 64000"),
        ({"prompt": "a", "min_tokens": 129}, "min_tokens", "at most max_tokens, 128"),
        ({"prompt": "a", "frequency_penalty": -2.1}, "frequency_penalty", "between -2 and 2"),
        ({"prompt": "a", "presence_penalty": "1"}, "presence_penalty", "must be a number, got str"),
        ({"prompt": "a", "seed": 65_536}, "seed", "between -65535 and 65535"),
        ({"prompt": "a", "detokenize": 1}, "detokenize", "must be true or false"),
    ],
)
def test_the_documents_ranges(body: dict[str, Any], field: str, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        documented(TEXT, body)
    assert caught.value.violations[0].field == field
    assert text in caught.value.violations[0].description


@pytest.mark.parametrize(
    ("messages", "field"),
    [
        (None, "messages"),
        ([], "messages"),
        ("hi", "messages"),
        (["hi"], "messages[0].role"),
        ([{"role": "bot", "content": "x"}], "messages[0].role"),
        ([*MESSAGES, {"role": "user", "content": ""}], "messages[1].content"),
        ([{"role": "assistant", "content": None}], "messages[0].content"),
    ],
)
def test_the_documents_messages(messages: Any, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        documented(CHAT, {"messages": messages})
    assert caught.value.violations[0].field == field
