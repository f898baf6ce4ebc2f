"""Memory without summaries: what goes in comes out, and the caller's own stays his."""

from __future__ import annotations

from typing import Any

import pytest

from gradwire.client.agentic import MemorySimple
from gradwire.client.agentic.memory import HuggingFaceTokenCounter, SimpleTokenCounter
from gradwire.client.agentic.memory.thinking import THINKING_OMITTED
from gradwire.server.models.resolve import resolve_model

THOUGHT = "<think>long\nthoughts</think>so: 4"


def said(role: str, content: str = "x") -> dict[str, Any]:
    return {"role": role, "content": content}


def test_a_prompt_is_the_messages_without_ids_and_times() -> None:
    memory = MemorySimple()
    memory.add_message(said("system", "be brief"), user_id="u", session_id="s", metadata={"a": 1})
    memory.add_message([said("user", "hi"), said("assistant", "hello")])
    assert memory.get_prompt_messages() == [said("system", "be brief"), said("user", "hi"), said("assistant", "hello")]
    assert [message["id"] for message in memory.get_messages()] == [0, 1, 2]
    assert all(len(message["time"]) == len("2026-01-31 12:00:00") for message in memory.get_messages())
    assert len(memory) == 3


def test_nothing_of_the_callers_is_changed_or_shared() -> None:
    message = {**said("assistant"), "tool_calls": [{"id": "call"}]}
    memory = MemorySimple()
    memory.add_message(message)
    memory.add_message(message)
    assert message == {**said("assistant"), "tool_calls": [{"id": "call"}]}
    message["tool_calls"].append({})
    memory.get_messages()[0]["content"] = "changed"
    memory.get_prompt_messages()[0]["tool_calls"].clear()
    assert memory.get_prompt_messages() == [{**said("assistant"), "tool_calls": [{"id": "call"}]}] * 2
    assert [kept["id"] for kept in memory.get_messages()] == [0, 1]


def test_tool_calls_stay_whole() -> None:
    memory = MemorySimple()
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function"}]}
    result = {"role": "tool", "content": "4", "tool_call_id": "1", "name": "add"}
    memory.add_message([call, result])
    assert memory.get_prompt_messages() == [call, result]
    assert memory.get_total_length() > 0


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("hi", "must be a dictionary"),
        ({"role": "user"}, "must have the key 'content'"),
        ({"content": "x"}, "must have the key 'role'"),
        ({"role": "", "content": "x"}, "role must be a non-empty string"),
        ({"role": "user", "content": None}, "content must be a string, got NoneType"),
        ({1: 2, "role": "user", "content": "x"}, "string keys"),
        ([{"role": "user", "content": "x"}, {}], "must have the key 'role'"),
    ],
)
def test_what_is_no_message_adds_nothing(message: Any, text: str) -> None:
    memory = MemorySimple()
    with pytest.raises(ValueError, match=text):
        memory.add_message(message)
    assert len(memory) == 0


def test_messages_can_be_inserted_windowed_and_cleared() -> None:
    memory = MemorySimple()
    memory.add_message([said("user", "1"), said("user", "4")])
    memory.add_message([said("user", "2"), said("user", "3")], insert_id=1)
    assert [m["content"] for m in memory.get_window_messages()] == ["1", "2", "3", "4"]
    assert [m["content"] for m in memory.get_window_messages(2)] == ["3", "4"]
    assert memory.get_window_messages(0) == []
    assert len(memory.get_window_messages(9)) == 4
    with pytest.raises(ValueError, match="limit_size"):
        memory.get_window_messages(-2)
    memory.clear_memory("system", "anew")
    assert memory.get_prompt_messages() == [said("system", "anew")]
    with pytest.raises(ValueError, match="go together"):
        memory.clear_memory("system")
    memory.clear_memory()
    assert len(memory) == 0


@pytest.mark.parametrize(
    ("before", "end", "shortened"), [(0, 0, [1, 3]), (2, 0, [3]), (0, -1, [1]), (0, -9, []), (9, 0, [])]
)
def test_thinking_is_shortened_between_the_raw_ends(before: int, end: int, shortened: list[int]) -> None:
    memory = MemorySimple({"simplify_thinking": True, "before_raw_message": before, "end_raw_message": end})
    memory.add_message([said("user", THOUGHT), said("assistant", THOUGHT)] * 2)
    prompt = memory.get_prompt_messages()
    assert [i for i, message in enumerate(prompt) if THINKING_OMITTED in message["content"]] == shortened
    assert memory.get_messages()[1]["content"] == THOUGHT


def test_thinking_can_be_shortened_by_hand() -> None:
    assert MemorySimple.simplify_or_remove_think(THOUGHT) == f"{THINKING_OMITTED}so: 4"
    assert MemorySimple.simplify_or_remove_think("<think>open") == "<think>open"
    messages = [said("assistant", THOUGHT)] * 3
    short = MemorySimple.simplify_or_remove_think(messages, 1, 2)
    assert [THINKING_OMITTED in message["content"] for message in short] == [False, True, False]  # type: ignore[index]
    assert messages[1]["content"] == THOUGHT


def test_the_length_is_that_of_the_models_own_prompt() -> None:
    folder = str(resolve_model("tiny"))
    memory = MemorySimple({"train_model_tokenizer_path": folder})
    assert isinstance(memory.token_counter, HuggingFaceTokenCounter)
    memory.add_message([said("system", "a"), said("user", "bcd")])
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.apply_chat_template(memory.get_prompt_messages(), add_generation_prompt=True, return_dict=False)
    assert memory.get_total_length() == len(ids)
    assert memory.report is not None
    assert memory.report.num_tokens == len(ids)
    assert memory.get_message_length(said("user", "bcd")) == 3 + 4


def test_a_missing_tokenizer_is_told_and_lengths_are_estimated(caplog: pytest.LogCaptureFixture) -> None:
    memory = MemorySimple({"train_model_tokenizer_path": "/nowhere"})
    assert isinstance(memory.token_counter, SimpleTokenCounter)
    assert "no tokenizer at '/nowhere'" in caplog.text
    assert memory.get_message_length(said("user", "x" * 40)) == 14
    memory.update_config({"train_model_tokenizer_path": str(resolve_model("tiny"))})
    assert memory.get_message_length(said("user", "x" * 40)) == 44


def test_options_come_with_the_question_too() -> None:
    memory = MemorySimple()
    memory.add_message(said("assistant", THOUGHT))
    assert memory.get_prompt_messages({"simplify_thinking": True})[0]["content"] == f"{THINKING_OMITTED}so: 4"
    with pytest.raises(ValueError, match="config must be a dictionary"):
        memory.update_config([1])  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "a", "word " * 50, "grüße 你好 " * 20])
def test_pieces_join_to_the_text_and_are_no_longer_than_asked(text: str) -> None:
    for counter in (SimpleTokenCounter(), HuggingFaceTokenCounter(str(resolve_model("tiny")))):
        pieces = counter.split_text(text, 7)
        assert "".join(pieces) == text
        assert all(counter.count_tokens(piece) <= 7 for piece in pieces)
        assert counter.count_tokens(counter.truncate(text, 5)) <= 6
