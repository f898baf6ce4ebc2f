"""The prompt's window: the longest end of a conversation that fits, system messages kept, whole turns only."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradwire.server.domain.sessions import Message
from gradwire.server.domain.window import fit
from gradwire.server.errors import InvalidArgument

TURNS = st.lists(st.tuples(st.text("u", max_size=9), st.lists(st.sampled_from(["assistant", "tool"]), max_size=3)),
                 min_size=1, max_size=12)  # fmt: skip


def count(messages: Sequence[Message]) -> int:
    return 5 + sum(len(message.content) + 2 for message in messages)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    system = [Message("system", "s" * n) for n in draw(st.lists(st.integers(0, 5), max_size=2))]
    greeting = [Message("assistant", "hi")] * draw(st.integers(0, 1))
    turns = [
        message
        for content, replies in draw(TURNS)
        for message in (Message("user", content), *(Message(role, "r" * len(content)) for role in replies))
    ]
    return [*system, *greeting, *turns]


@given(conversations(), st.integers(0, 200))
def test_the_window_is_the_longest_end_that_fits(messages: list[Message], budget: int) -> None:
    head = next(i for i, message in enumerate(messages) if message.role != "system")
    ends = [[*messages[:head], *messages[i:]] for i in range(head, len(messages)) if messages[i].role == "user"]
    fitting = [end for end in ends if count(end) <= budget]
    if not fitting:
        with pytest.raises(InvalidArgument) as caught:
            fit(messages, count, budget)
        assert caught.value.reason == "PROMPT_TOO_LONG"
        return
    window = fit(messages, count, budget)
    assert list(window.messages) == max(fitting, key=len)
    assert window.num_dropped_messages + len(window.messages) == len(messages)
    assert window.num_tokens == count(window.messages) <= budget
    assert next(message for message in window.messages if message.role != "system").role == "user"


@given(conversations(), st.integers(0, 60), st.integers(0, 1 << 30))
def test_whatever_a_counter_says_what_is_returned_fits(messages: list[Message], budget: int, seed: int) -> None:
    def erratic(kept: Sequence[Message]) -> int:
        return (seed >> len(kept)) % 97

    try:
        window = fit(messages, erratic, budget)
    except InvalidArgument:
        return
    assert erratic(window.messages) <= budget


def test_a_long_conversation_is_counted_a_few_times() -> None:
    calls = 0

    def counting(messages: Sequence[Message]) -> int:
        nonlocal calls
        calls += 1
        return count(messages)

    messages = [Message(role, "x" * 8) for _ in range(5000) for role in ("user", "assistant")]
    window = fit(messages, counting, 2005)
    assert len(window.messages) == 200
    assert calls < 16


def test_without_a_user_there_is_nothing_to_answer() -> None:
    with pytest.raises(InvalidArgument, match="no message of a user"):
        fit([Message("system", "s"), Message("assistant", "a")], count, 100)
