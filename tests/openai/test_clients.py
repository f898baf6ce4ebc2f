"""OpenAI's own client, LangChain's and LiteLLM, unchanged, against a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest

from gradwire.client import Client
from tests.serving import ServerProcess

HELLO: Any = [{"role": "user", "content": "hello"}]
ADD: Any = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "adds",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}},
            "required": ["a"],
            "additionalProperties": False,
        },
    },
}


# xgrammar makes a rule for each property and each count of them.
WIDE: Any = {"maxProperties": 100, "properties": {f"a{i}": {"type": "string"} for i in range(300)}}

# A grammar of JSON lets a random model write blanks for ever.
NO_BLANKS: Any = {"32": -100, "9": -100, "13": -100}


@pytest.fixture(scope="module")
def base_url(server: ServerProcess) -> str:
    return f"http://{server.doors['http']}/v1"


@pytest.fixture(scope="module")
def client(base_url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=base_url, api_key="EMPTY", max_retries=0) as made:
        yield made


def test_there_is_one_model(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert (model.id, model.owned_by) == ("tiny", "gradwire")
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError, match="there is: tiny"):
        client.models.retrieve("huge")


def test_a_completion_is_the_one_that_grpc_gives(client: openai.OpenAI, server: ServerProcess) -> None:
    answer = client.completions.create(
        model="any name", prompt="hello", max_tokens=8, temperature=0, logprobs=2, extra_body={"return_token_ids": True}
    )
    with Client(server.address) as grpc:
        expected = grpc.sampling.generate("hello", max_tokens=8, temperature=0, log_probs=2)[0].completions[0]
    choice: Any = answer.choices[0]
    assert expected.log_probs is not None
    assert choice.text == expected.text
    assert choice.token_ids == expected.token_ids.tolist()
    assert choice.prompt_token_ids == [int(b) for b in b"hello"]
    assert np.allclose(choice.logprobs.token_logprobs, expected.log_probs, atol=1e-4)
    assert (choice.finish_reason, answer.object, answer.model) == ("length", "text_completion", "tiny")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (5, 8, 13)
    assert answer.weight_version == expected.weight_version  # type: ignore[attr-defined]


def test_a_stream_joins_to_the_whole_and_ends_with_usage(client: openai.OpenAI) -> None:
    options: Any = {"model": "tiny", "messages": HELLO, "max_tokens": 12, "seed": 3, "temperature": 1.0, "n": 2}
    whole = client.chat.completions.create(**options)
    texts = ["", ""]
    finished: dict[int, str] = {}
    usage = None
    for chunk in client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            if choice.finish_reason:
                finished[choice.index] = choice.finish_reason
                assert (chunk.model_extra or {})["weight_version"] == (whole.model_extra or {})["weight_version"]
        usage = chunk.usage or usage
    assert texts == [choice.message.content for choice in whole.choices]
    assert texts[0] != texts[1]
    assert finished == {0: "length", 1: "length"}
    assert usage is not None
    assert usage.completion_tokens == 24


def test_stop_penalties_and_log_probs_are_understood(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=20, temperature=0, logprobs=True, top_logprobs=3
    )
    logprobs = plain.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert len(logprobs.content) == 20
    assert all(len(entry.top_logprobs) == 3 and entry.logprob <= 0 for entry in logprobs.content)
    text = plain.choices[0].message.content or ""
    stop = text[4:6]
    stopped = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=20, temperature=0, stop=[stop])
    assert stopped.choices[0].message.content == text[: text.index(stop)]
    assert stopped.choices[0].finish_reason == "stop"
    fresh = client.completions.create(
        model="tiny", prompt="a", max_tokens=30, temperature=0, presence_penalty=2, frequency_penalty=2,
        extra_body={"repetition_penalty": 2.0, "return_token_ids": True},
    )  # fmt: skip
    assert len(set(fresh.choices[0].token_ids)) > 15  # type: ignore[attr-defined]


@pytest.mark.parametrize("max_tokens", [0, 2])
@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_has_log_probs_of_the_prompt(client: openai.OpenAI, max_tokens: int, stream: bool) -> None:
    options: Any = {"max_tokens": max_tokens, "logprobs": 1, "echo": True, "stream": stream}
    answer: Any = client.completions.create(model="tiny", prompt=[104, 105, 106], **options)
    parts = [chunk.choices[0].logprobs for chunk in answer if chunk.choices] if stream else [answer.choices[0].logprobs]
    found = [value for part in parts if part is not None for value in part.token_logprobs]
    assert len(found) == 3 + max_tokens
    assert found[0] is None and all(value < 0 for value in found[1:])


def test_many_equal_choices_are_one(client: openai.OpenAI) -> None:
    body = {"structured_outputs": {"choice": ["a"] * 2000}}
    assert client.completions.create(model="tiny", prompt="hi", extra_body=body).choices[0].text == "a"


def test_a_grammar_that_the_engine_cannot_make_is_the_callers_fault(client: openai.OpenAI) -> None:
    body = {"structured_outputs": {"json": {"type": "object", "patternProperties": {"(": {}}}}}
    with pytest.raises(openai.BadRequestError, match="Failed to transform"):
        client.completions.create(model="tiny", prompt="hi", extra_body=body)


def test_vllms_own_extensions_are_understood(client: openai.OpenAI) -> None:
    greedy = client.completions.create(model="m", prompt="a", max_tokens=4, temperature=0)
    narrow = client.completions.create(
        model="m", prompt="a", max_tokens=4, temperature=1, extra_body={"top_k": 1, "min_p": 0.1, "min_tokens": 4}
    )
    assert narrow.choices[0].text == greedy.choices[0].text
    ids = client.completions.create(model="m", prompt=[97], max_tokens=4, temperature=0)
    assert ids.choices[0].text == greedy.choices[0].text
    several = client.completions.create(model="m", prompt=["a", "b"], max_tokens=2, n=2)
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    unknown = client.completions.create(model="m", prompt="a", max_tokens=1, extra_body={"no_such_option": 1})
    assert len(unknown.choices) == 1


def test_a_schema_binds_the_reply(client: openai.OpenAI) -> None:
    schema: Any = {"name": "n", "schema": ADD["function"]["parameters"]}
    answer = client.chat.completions.create(
        model="tiny", messages=HELLO, max_tokens=200, temperature=0, logit_bias=NO_BLANKS,
        response_format={"type": "json_schema", "json_schema": schema},
    )  # fmt: skip
    assert set(json.loads(answer.choices[0].message.content or "")) == {"a"}


@pytest.mark.parametrize("stream", [False, True])
def test_tools_are_called(client: openai.OpenAI, stream: bool) -> None:
    options: Any = {
        "model": "tiny", "messages": HELLO, "tools": [ADD], "max_tokens": 200, "temperature": 0,
        "logit_bias": NO_BLANKS, "tool_choice": {"type": "function", "function": {"name": "add"}},
    }  # fmt: skip
    if stream:
        name, arguments = "", ""
        for chunk in client.chat.completions.create(**options, stream=True):
            for call in (chunk.choices[0].delta.tool_calls or []) if chunk.choices else []:
                assert call.function is not None
                name += call.function.name or ""
                arguments += call.function.arguments or ""
    else:
        message = client.chat.completions.create(**options).choices[0].message
        assert message.tool_calls
        name, arguments = message.tool_calls[0].function.name, message.tool_calls[0].function.arguments
    assert name == "add"
    assert set(json.loads(arguments)) == {"a"}


def test_a_tools_result_goes_back_into_the_conversation(client: openai.OpenAI) -> None:
    call: Any = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages: Any = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_call_id": "c1"},
    ]
    answer = client.chat.completions.create(model="tiny", messages=messages, tools=[ADD], max_tokens=4)
    assert answer.choices[0].message.role == "assistant"


async def test_the_async_client_works_and_streams(base_url: str) -> None:
    async with openai.AsyncOpenAI(base_url=base_url, api_key="EMPTY") as client:
        whole = await client.completions.create(model="tiny", prompt="hello", max_tokens=6, temperature=0)
        stream = await client.completions.create(model="tiny", prompt="hello", max_tokens=6, temperature=0, stream=True)
        assert "".join([chunk.choices[0].text async for chunk in stream]) == whole.choices[0].text


def test_the_request_id_of_the_caller_comes_back(client: openai.OpenAI) -> None:
    answer = client.completions.with_raw_response.create(
        model="tiny", prompt="a", max_tokens=1, extra_headers={"X-Request-Id": "mine-1"}
    )
    assert answer.headers["x-request-id"] == "mine-1"
    assert answer.parse().id == "cmpl-mine-1"


@pytest.mark.parametrize(
    ("body", "param", "text"),
    [
        ({"temperature": -1}, "temperature", "non-negative"),
        ({"top_p": 0}, "top_p", "top_p"),
        ({"n": 0}, "n", "at least 1"),
        ({"n": 100_000}, "n", "at most 1024"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"seed": "x"}, "seed", "integer"),
        ({"logit_bias": {"x": 1}}, "logit_bias", ""),
        ({"messages": []}, None, "at least one message"),
        ({"messages": [{"role": "user", "content": "h" * 5000}]}, None, "maximum context length is 2048"),
        ({"messages": "hello"}, "messages", "list"),
        ({"stop": ["x"] * 65}, "stop", "at most 64"),
        ({"use_beam_search": True}, "use_beam_search", "not supported"),
        ({"response_format": {"type": "regex?"}}, None, ""),
        ({"structured_outputs": {"json": {"type": "array", "maxItems": 10**9}}}, "structured_outputs.json", "too much"),
        ({"structured_outputs": {"json": WIDE}}, "structured_outputs.json", "too much work"),
        ({"structured_outputs": {"grammar": "start: %json {}"}}, "structured_outputs.grammar", "%json"),
        ({"tools": [{"function": {"parameters": {"items": [{"minItems": 1e300}]}}}]}, "tools", "too much work"),
        ({"stream_options": {"include_usage": True}}, None, "stream"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_requests_are_errors_with_the_fields_name(
    client: openai.OpenAI, body: dict[str, Any], param: str | None, text: str, stream: bool
) -> None:
    if stream and "stream_options" in body:
        return
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=HELLO, extra_body={**body, "stream": stream})
    error: Any = caught.value.body
    assert error["type"] == "invalid_request_error"
    assert text.lower() in error["message"].lower()
    if param is not None:
        assert error["param"] == param
    assert caught.value.response.headers["x-should-retry"] == "false"


def test_langchain_works(base_url: str) -> None:
    from langchain_openai import ChatOpenAI, OpenAI

    options: Any = {"base_url": base_url, "api_key": "EMPTY", "model": "tiny", "temperature": 0}
    chat = ChatOpenAI(**options, max_completion_tokens=200, logit_bias=NO_BLANKS)
    called = chat.bind_tools([ADD], tool_choice="add").invoke("hello")
    assert called.tool_calls[0]["name"] == "add"
    plain = ChatOpenAI(**options, max_completion_tokens=8)
    assert "".join(str(chunk.content) for chunk in plain.stream("hello")) == plain.invoke("hello").content
    words = OpenAI(**options, max_tokens=4).generate(["hello", "world"])
    assert len(words.generations) == 2


def test_litellm_works(base_url: str) -> None:
    litellm = pytest.importorskip("litellm")
    for provider in ("openai", "hosted_vllm"):
        answer = litellm.completion(
            model=f"{provider}/tiny", messages=HELLO, api_base=base_url, api_key="EMPTY", max_tokens=4, temperature=0
        )
        assert answer.choices[0].message.content is not None
