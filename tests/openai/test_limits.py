"""What a body may hold, on a real server: types, sizes, log-probs of both profiles. The engine outlives all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.serving import ServerProcess

HELLO: Any = [{"role": "user", "content": "hello"}]
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
DOCUMENTED = {"x-gradwire-profile": "documented"}


@pytest_asyncio.fixture
async def session(server: ServerProcess) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(f"http://{server.doors['http']}") as made:
        yield made


async def ask(
    session: aiohttp.ClientSession, path: str, body: dict[str, Any], *, documented: bool = False
) -> tuple[int, dict[str, Any]]:
    body = {"messages": HELLO, **body} if path == "chat/completions" else {"prompt": "a", **body}
    async with session.post(f"/v1/{path}", json=body, headers=DOCUMENTED if documented else {}) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("documented", [False, True])
async def test_a_field_of_the_wrong_type_is_named(session: aiohttp.ClientSession, documented: bool) -> None:
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("completions", {"prompt": 5}, "prompt"),
        ("completions", {"prompt": {}}, "prompt"),
        ("completions", {"max_tokens": "x"}, "max_tokens"),
        ("completions", {"max_tokens": 1.5}, "max_tokens"),
        ("completions", {"temperature": []}, "temperature"),
        ("completions", {"top_k": "x"}, "top_k"),
        ("completions", {"logprobs": "x"}, "logprobs"),
        ("completions", {"stop": 5}, "stop"),
        ("completions", {"stream": "maybe"}, "stream"),
        ("completions", {"return_token_ids": "x"}, "return_token_ids"),
        ("chat/completions", {"messages": {}}, "messages"),
        ("chat/completions", {"seed": {}}, "seed"),
        ("chat/completions", {"min_p": "x"}, "min_p"),
    ]
    for path, body, param in wrong:
        status, answer = await ask(session, path, body, documented=documented)
        assert (status, answer["error"]["param"]) == (400, param), body
        assert answer["error"]["type"] == "invalid_request_error"
    status, answer = await ask(session, "completions", {"max_tokens": 2}, documented=documented)
    assert (status, answer["usage"]["completion_tokens"]) == (200, 2)


async def test_turns_of_tool_calls_alone_are_read_and_broken_ones_are_named(session: aiohttp.ClientSession) -> None:
    async def turns(*more: Any) -> tuple[int, dict[str, Any]]:
        return await ask(session, "chat/completions", {"messages": [*HELLO, *more], "max_tokens": 2})

    tool = {"role": "tool", "content": "x", "tool_call_id": "c1"}
    assert (await turns({"role": "assistant", "content": None, "tool_calls": [CALL]}, tool))[0] == 200
    assert (await turns({"role": "assistant", "tool_calls": [CALL]}, tool))[0] == 200
    assert (await turns({"role": "assistant", "content": None}))[0] == 200
    for message, param in (
        ({"role": "tool", "content": None, "tool_call_id": "c1"}, "messages.1.content"),
        ({"role": "user", "content": 5}, "messages.1.content"),
        ({"role": 5, "content": "x"}, "messages.1.role"),
        (5, "messages.1"),
    ):
        status, answer = await turns(message)
        assert status == 400
        assert param in answer["error"]["message"] and "Param" not in answer["error"]["message"], answer
    for calls in (5, "x", [5]):
        assert (await turns({"role": "assistant", "content": None, "tool_calls": calls}))[0] == 400


async def test_no_log_probs_mean_none_to_the_document_and_the_samples_own_to_openai(
    session: aiohttp.ClientSession,
) -> None:
    async def log_probs(path: str, options: dict[str, Any], *, documented: bool) -> Any:
        status, answer = await ask(session, path, {**options, "max_tokens": 2}, documented=documented)
        assert status == 200, answer
        return answer["choices"][0]["logprobs"]

    for path in ("completions", "chat/completions"):
        assert await log_probs(path, {"logprobs": 0}, documented=True) is None
    found = await log_probs("completions", {"logprobs": 0}, documented=False)
    assert len(found["token_logprobs"]) == 2 and all(len(top) == 1 for top in found["top_logprobs"])
    found = await log_probs("chat/completions", {"logprobs": True, "top_logprobs": 0}, documented=False)
    assert [(entry["logprob"] <= 0, entry["top_logprobs"]) for entry in found["content"]] == [(True, [])] * 2
    found = await log_probs("chat/completions", {"logprobs": 2}, documented=True)
    assert [len(entry["top_logprobs"]) for entry in found["content"]] == [2, 2]


async def test_128k_is_an_error_where_the_model_has_no_room_for_it(session: aiohttp.ClientSession) -> None:
    for prompt in ("a" * 131_072, [97] * 131_072):
        status, answer = await ask(session, "completions", {"prompt": prompt, "max_tokens": 1})
        assert status == 400 and "maximum context length is 2048" in answer["error"]["message"]
        assert answer["error"]["param"] is None
    status, answer = await ask(session, "completions", {"max_tokens": 64_000})
    assert (status, answer["error"]["param"]) == (400, "max_tokens")


async def test_the_documents_most_tokens_are_those_that_there_is_room_for(session: aiohttp.ClientSession) -> None:
    prompt = "a" * 2000
    for path, given in (("completions", {"prompt": prompt}), ("chat/completions", {})):
        for least, most in ((64_000, 64_000), (0, 3), (3, 3)):
            body = {**given, "max_tokens": most, "min_tokens": least, "n": 2, "temperature": 1.0}
            if path == "chat/completions":
                body["messages"] = [{"role": "user", "content": prompt}]
            status, answer = await ask(session, path, body, documented=True)
            assert status == 200, answer
            room = 2048 - answer["usage"]["prompt_tokens"]
            count = answer["usage"]["completion_tokens"]
            assert 2 * min(least, room) <= count <= 2 * min(most, room)
    status, answer = await ask(session, "completions", {}, documented=True)
    assert answer["usage"]["completion_tokens"] <= 128
