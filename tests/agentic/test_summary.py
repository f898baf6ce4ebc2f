"""Summaries: written when they must be, by a real OpenAI client on a transport that answers in this process."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import openai
import pytest

from gradwire.client.agentic import MemorySummary, SummaryClient, SummaryGenerationError
from tests.client.waiting import until

Answer = Callable[[dict[str, Any]], str | int]


class Model:
    """Answers chat completions on a port of this machine; keeps what it was asked."""

    def __init__(self, answer: Answer = lambda request: "the gist") -> None:
        self.asked: list[dict[str, Any]] = []
        self.answer = answer
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                model.reply(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.client = openai.OpenAI(api_key="-", base_url=url)

    def reply(self, handler: BaseHTTPRequestHandler) -> None:
        asked = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        self.asked.append(asked)
        answer = self.answer(asked)
        body: dict[str, Any] = {"error": {"message": "busy"}}
        if isinstance(answer, str):
            choice = {"index": 0, "message": said("assistant", answer), "finish_reason": "stop"}
            body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        data = json.dumps(body).encode()
        handler.send_response(200 if isinstance(answer, str) else answer)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *error: object) -> None:
        self.server.shutdown()
        self.server.server_close()


Make = Callable[..., Model]


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as served:
        yield served


@pytest.fixture
def make() -> Iterator[Make]:
    with ExitStack() as stack:
        yield lambda *answer: stack.enter_context(Model(*answer))


def said(role: str, content: str = "x") -> dict[str, Any]:
    return {"role": role, "content": content}


def turns(count: int, length: int = 400) -> list[dict[str, Any]]:
    return [
        message
        for n in range(count)
        for message in (said("user", f"question {n} " + "q" * length), said("assistant", f"answer {n} " + "a" * length))
    ]


def memory(model: Model | None, **options: Any) -> MemorySummary:
    options = {"use_summary": True, "max_prompt_length": 1000, "max_summary_length": 50, **options}
    if model is not None:
        options["oai_client"] = model.client
    return MemorySummary(options)


def contents(messages: list[dict[str, Any]]) -> str:
    return "\n".join(message["content"] for message in messages)


def test_short_conversations_are_left_alone_and_need_no_client(model: Model) -> None:
    kept = MemorySummary()
    kept.add_message(turns(2))
    assert kept.get_prompt_messages() == turns(2)
    kept = memory(model)
    kept.add_message(turns(2))
    assert kept.get_prompt_messages() == turns(2)
    assert model.asked == []


def test_the_system_prompt_and_the_latest_turn_stay(model: Model) -> None:
    kept = memory(model)
    kept.add_message([said("system", "be good"), *turns(8), said("user", "and now?")])
    prompt = kept.get_prompt_messages()
    assert [message["role"] for message in prompt] == ["system", "user"]
    assert prompt[0]["content"].startswith("be good\n\n[Historical Information Summary]:\n\nthe gist")
    assert prompt[1]["content"] == "and now?"
    assert kept.report is not None
    assert (kept.report.num_summarised, kept.report.num_dropped, kept.report.over_length) == (16, 0, False)
    spoken = "".join(asked["messages"][1]["content"] for asked in model.asked)
    assert all(f"question {n}" in spoken and f"answer {n}" in spoken for n in range(8))
    assert all(asked["max_tokens"] == 50 and asked["model"] == "qwen2.5-7b-instruct" for asked in model.asked)
    # Nothing is lost: the memory itself still has it all.
    assert "question 0" in contents(kept.get_messages())


def test_no_summariser_is_asked_for_more_than_it_can_read(model: Model) -> None:
    kept = memory(model)
    kept.add_message([*turns(12), said("user", "a long one " + "z" * 20_000), said("user", "now?")])
    kept.get_prompt_messages()
    assert len(model.asked) > 2
    counter = kept.token_counter
    assert all(counter.count_messages(asked["messages"]) <= 1000 for asked in model.asked)
    # Rolling: each one is told what the ones before it found.
    assert all("the gist" in asked["messages"][0]["content"] for asked in model.asked[1:])


def test_a_prompt_without_a_system_message_gets_none_that_is_empty(model: Model) -> None:
    kept = memory(model)
    kept.add_message(turns(2))
    assert kept.get_prompt_messages()[0]["role"] == "user"
    kept.add_message(turns(8))
    prompt = kept.get_prompt_messages()
    assert prompt[0] == said("system", "[Historical Information Summary]:\n\nthe gist")


def test_a_summary_is_written_once(model: Model) -> None:
    kept = memory(model)
    kept.add_message([*turns(8), said("user", "now?")])
    first = kept.get_prompt_messages()
    count = len(model.asked)
    assert kept.get_prompt_messages() == first
    assert len(model.asked) == count
    kept.add_message(said("assistant", "then"))
    assert len(kept.get_prompt_messages()) == len(first) + 1
    assert len(model.asked) == count
    assert [m["role"] for m in kept.get_messages()].count("summary") >= 1


def test_raw_ends_are_kept_word_for_word(model: Model) -> None:
    kept = memory(model, before_raw_message=3, end_raw_message=-3)
    spoken = [said("system", "s"), *turns(10)]
    kept.add_message(spoken)
    prompt = kept.get_prompt_messages()
    assert prompt[1:3] == spoken[1:3]
    assert prompt[-3:] == spoken[-3:]
    assert len(prompt) == 6


def test_a_reply_with_its_tool_results_stays_whole_in_an_agents_loop(model: Model) -> None:
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "1"}]}
    steps = [m for n in range(6) for m in (call, said("tool", f"result {n} " + "r" * 800))]
    kept = memory(model)
    kept.add_message([said("system", "s"), said("user", "the task"), *steps])
    prompt = kept.get_prompt_messages()
    assert [message["role"] for message in prompt] == ["system", "user", "assistant", "tool"]
    assert prompt[1]["content"] == "the task"
    assert "result 5" in prompt[-1]["content"]


@pytest.mark.parametrize("answer", [None, 400, "<think>hm</think>"])
def test_without_a_summary_the_oldest_turns_are_left_out_and_that_is_said(answer: str | int | None, make: Make) -> None:
    model = None if answer is None else make(lambda request: answer)
    kept = memory(model)
    kept.add_message([said("system", "s"), *turns(8), said("user", "now?")])
    prompt = kept.get_prompt_messages()
    assert kept.report is not None
    assert not kept.report.over_length
    assert kept.report.error
    assert kept.report.num_dropped == 1 + 16 + 1 - len(prompt)
    assert kept.token_counter.count_messages(prompt) <= 1000
    assert prompt[0] == said("system", "s")
    assert prompt[-1] == said("user", "now?")
    assert "question 0" in contents(kept.get_messages())
    asked = len(model.asked) if model else 0
    kept.get_prompt_messages()
    assert (len(model.asked) if model else 0) == asked  # the same messages are not tried again and again


def test_what_cannot_be_shortened_is_reported(model: Model, caplog: pytest.LogCaptureFixture) -> None:
    kept = memory(model)
    kept.add_message(said("user", "z" * 8000))
    prompt = kept.get_prompt_messages()
    assert len(prompt) == 1
    assert kept.report is not None
    assert kept.report.over_length
    assert kept.report.num_tokens == 2004
    assert "PROMPT_TRUNCATION: Prompt length (2004) exceeds max_prompt_length (1000)" in caplog.text


def test_a_changed_client_is_used_and_options_are_changed_again_and_again(make: Make) -> None:
    first, second = make(), make(lambda request: "another gist")
    kept = memory(first)
    kept.add_message(turns(8))
    kept.get_prompt_messages({"oai_client": second.client})
    kept.get_prompt_messages({"max_prompt_length": 900})
    assert first.asked == []
    assert second.asked
    with pytest.raises(ValueError, match="max_summary_length"):
        kept.update_config({"max_prompt_length": 10})
    assert kept.config.max_prompt_length == 900


def test_a_summary_is_what_the_model_answers_cut_to_its_length(make: Make) -> None:
    kept = memory(make(lambda request: f"<think>hm</think><answer> {'w' * 1000} </answer>"))
    kept.add_message(turns(8))
    summary = (
        next(m["content"] for m in kept.get_messages() if m["role"] == "summary") if kept.get_prompt_messages() else ""
    )
    assert summary == "w" * 200


async def test_the_loop_goes_on_while_a_summary_is_written_and_it_is_written_once(make: Make) -> None:
    gate = threading.Event()
    model = make(lambda request: "slow" if gate.wait(10) else "never")
    kept = memory(model)
    kept.add_message([*turns(6), said("user", "now?")])
    asked = [asyncio.create_task(kept.aget_prompt_messages()) for _ in range(3)]
    await until(lambda: bool(model.asked))
    gate.set()
    first, second, third = await asyncio.gather(*asked)
    assert first == second == third
    single = len(model.asked)
    await kept.aget_prompt_messages()
    assert len(model.asked) == single


def refuse(code: int, request: dict[str, Any]) -> int:
    return code


def test_a_busy_model_is_asked_again_and_a_refusal_is_not(make: Make) -> None:
    answers: Iterator[str | int] = iter([429, 429, "well"])
    model = make(lambda request: next(answers))
    client = SummaryClient(model.client, "m")
    assert client.generate_chat_completion([said("user")], retry_delay=0) == "well"
    assert len(model.asked) == 3
    for code, count in ((429, 2), (500, 1)):
        model = make(partial(refuse, code))
        with pytest.raises(SummaryGenerationError):
            SummaryClient(model.client, "m").generate_chat_completion([said("user")], max_retries=2, retry_delay=0)
        assert len(model.asked) == count


def test_a_client_must_be_one(model: Model) -> None:
    with pytest.raises(TypeError, match=r"openai\.OpenAI, got str"):
        SummaryClient("client", "m")
    with pytest.raises(ValueError, match="model_name"):
        SummaryClient(model.client, " ")
