"""`completions[i]`: one object for plain code, coroutines and threads, on a real server; faults on a small one."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp.web
import pytest
import pytest_asyncio

from gradwire.client.agentic import CompletionError, Completions, deadline_in
from tests.agentic.engines import Engine
from tests.serving import ServerProcess

REQUEST = {"prompt": "hello", "max_tokens": 6, "temperature": 0.0}


@pytest.fixture
def engine(server: ServerProcess) -> Engine:
    made = Engine(lambda tasks: [])
    made.connect([server.doors["http"]])
    return made


@pytest.fixture
def completions(engine: Engine) -> Completions:
    assert engine.completions is not None
    return engine.completions[0]


def choice(answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = answer["choices"][0]
    return found


def test_a_plain_call_gives_openais_answer_with_what_was_sampled(completions: Completions) -> None:
    result = completions(REQUEST)
    assert (result["object"], len(result["choices"]), set(result) >= {"id", "usage", "model"}) == (
        "text_completion", 1, True,
    )  # fmt: skip
    assert choice(result)["prompt_token_ids"] == list(b"hello")
    assert bytes(choice(result)["token_ids"]).decode() == choice(result)["text"]
    assert len(choice(result)["logprobs"]["token_logprobs"]) == 6
    assert result.get("no such key") is None
    assert type(result.result()) is dict and dict(result) == result.result()


def test_the_same_call_is_made_plainly_awaited_and_from_threads(completions: Completions) -> None:
    async def in_a_loop() -> list[dict[str, Any]]:
        awaited = completions(REQUEST)
        return [
            await awaited,
            await awaited,
            *await asyncio.gather(completions(REQUEST), completions(REQUEST)),
            await asyncio.wait_for(completions(REQUEST), 60),
            await asyncio.create_task(completions(REQUEST)),
            completions(REQUEST).result(),
        ]

    answers = [
        *asyncio.run(in_a_loop()),
        *asyncio.run(in_a_loop()),
        asyncio.run(completions(REQUEST)),
        completions(REQUEST),
    ]
    with ThreadPoolExecutor(4) as pool:
        answers += pool.map(lambda _: asyncio.run(completions(REQUEST)), range(8))
        answers += pool.map(lambda _: completions(REQUEST).result(), range(8))
    assert {tuple(choice(answer)["token_ids"]) for answer in answers} == {tuple(choice(answers[0])["token_ids"])}
    assert {type(answer) for answer in answers} == {dict, type(completions(REQUEST))}


def test_documented_defaults_and_ranges_hold(completions: Completions) -> None:
    assert len(choice(completions({"prompt": "a", "seed": 1, "return_token_ids": False}))["text"]) <= 128
    assert choice(completions({**REQUEST, "logprobs": 0}))["logprobs"] is None
    assert len(completions({**REQUEST, "n": 2, "temperature": 1.0, "model_name": "any"})["choices"]) == 2
    for wrong, text in (
        ({"temperature": 2.5}, "Field 'temperature' must be a number between 0 and 2"),
        ({"temperature": float("nan")}, "NaN is no number"),
        ({"max_tokens": "6"}, "Field 'max_tokens' must be an integer, got str"),
        ({"prompt": ""}, "non-empty string"),
        ({"best_of": 2}, "Unrecognized field"),
        ({"stream": True}, "a stream is to be had over HTTP"),
    ):
        with pytest.raises(ValueError, match=r"^Input validation failed: ") as caught:
            completions({**REQUEST, **wrong}).result()
        assert text in str(caught.value)
    request: Any
    for request in (None, "hello", [REQUEST], {1: 2}, {"prompt": {1}}):
        with pytest.raises(TypeError):
            completions(request).result()
    assert choice(completions(REQUEST))["token_ids"]  # and the engine is none the worse


async def test_one_bad_request_among_many_spoils_no_other(completions: Completions) -> None:
    answers = await asyncio.gather(
        *(completions({**REQUEST, "top_p": top_p}) for top_p in (1.0, 0.0, 0.5)), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [dict, ValueError, dict]


async def test_a_deadline_ends_a_call_and_so_does_cancelling(completions: Completions) -> None:
    long = {"prompt": "x", "max_tokens": 1900, "n": 8, "min_tokens": 1900}
    with deadline_in(0.1):
        late = completions(long)
    with pytest.raises(TimeoutError, match="gave no answer within"):
        await late
    task = asyncio.create_task(completions(long))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


Answer = Callable[[int], aiohttp.web.Response]


class FakeServer:
    """Answers by `answer(how many calls there were before)`."""

    def __init__(self) -> None:
        self.answer: Answer = lambda calls: aiohttp.web.json_response({})
        self.request_ids: list[str] = []
        self.address = ""

    async def handle(self, request: aiohttp.web.Request) -> aiohttp.web.Response:
        self.request_ids.append(request.headers["x-request-id"])
        return self.answer(len(self.request_ids) - 1)


@pytest_asyncio.fixture
async def fake() -> AsyncIterator[FakeServer]:
    served = FakeServer()
    application = aiohttp.web.Application()
    application.router.add_post("/v1/completions", served.handle)
    runner = aiohttp.web.AppRunner(application)
    await runner.setup()
    site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    served.address = f"127.0.0.1:{runner.addresses[0][1]}"
    yield served
    await runner.cleanup()


async def test_a_busy_server_is_asked_again_with_the_same_id(fake: FakeServer) -> None:
    busy = {"x-should-retry": "true", "retry-after": "0"}
    fake.answer = lambda calls: aiohttp.web.json_response({"calls": calls}, status=200 if calls else 429, headers=busy)
    assert await Completions(fake.address)(REQUEST) == {"calls": 1}
    assert len(fake.request_ids) == 2 and len(set(fake.request_ids)) == 1


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (503, b'{"error": {"message": "asleep"}}', "answers 503: asleep"),
        (500, b"<html>", "answers 500: <html>"),
        (401, b'{"error": "who?"}', "answers 401: "),
        (302, b"", "answers 302: no reason is given"),
        (200, b"<html>", "what is no JSON"),
        (200, b"[1]", "a JSON list"),
    ],
)
async def test_what_a_server_cannot_do_is_told(fake: FakeServer, status: int, body: bytes, text: str) -> None:
    fake.answer = lambda calls: aiohttp.web.Response(status=status, body=body)
    with pytest.raises(CompletionError) as caught:
        await Completions(fake.address)(REQUEST)
    assert text in str(caught.value) and caught.value.status == status
    assert len(fake.request_ids) == 1


def test_a_server_that_is_not_there_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(CompletionError, match=r"127\.0\.0\.1:9/v1/completions cannot be reached"):
        Completions("127.0.0.1:9")(REQUEST).result()
    unseen = Completions("127.0.0.1:9")(REQUEST)
    while not repr(unseen).endswith("done>"):
        time.sleep(0.01)
    del unseen
    gc.collect()
    assert "nobody looked at it" in caplog.text
