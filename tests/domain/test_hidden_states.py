"""Hidden states that the server keeps: one call at a time, bounded in number, bytes and age."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from gradwire.server.domain.hidden_states import HiddenStates, Key


def key(session: str, instance: str = "i") -> Key:
    return instance, "tenant", "user", session


async def keep(states: HiddenStates, name: Key, numbers: int) -> None:
    async with states.state(name) as kept:
        kept.value = {"h": np.zeros(numbers, np.float32)}


async def has(states: HiddenStates, name: Key) -> bool:
    async with states.state(name) as kept:
        return kept.value is not None


async def test_calls_of_a_session_run_one_after_the_other() -> None:
    states = HiddenStates()
    order: list[str] = []

    async def call(name: str, session: str) -> None:
        async with states.state(key(session)) as kept:
            order.append(f"{name} begins")
            await asyncio.sleep(0)
            kept.value = np.array([len(order)])
            order.append(f"{name} ends")

    await asyncio.gather(call("a", "s"), call("b", "s"), call("c", "t"))
    assert order == ["a begins", "c begins", "a ends", "c ends", "b begins", "b ends"]
    assert len(states) == 2


async def test_an_error_leaves_the_state_as_it_was_and_nothing_of_a_new_session() -> None:
    states = HiddenStates()
    await keep(states, key("s"), 2)
    for session in ("s", "new"):
        with pytest.raises(RuntimeError):
            async with states.state(key(session)):
                raise RuntimeError
    assert len(states) == 1 and await has(states, key("s"))


async def test_the_least_recently_used_goes_first() -> None:
    states = HiddenStates(max_states=3, max_bytes=100)
    for session in "abc":
        await keep(states, key(session), 5)  # 20 bytes each
    assert await has(states, key("a"))
    await keep(states, key("d"), 5)
    assert [await has(states, key(session)) for session in "abcd"] == [True, False, True, True]
    await keep(states, key("c"), 15)
    assert [await has(states, key(session)) for session in "acd"] == [True, True, True]
    await keep(states, key("a"), 15)
    assert [await has(states, key(session)) for session in "acd"] == [True, False, True]
    await keep(states, key("huge"), 1000)
    assert len(states) == 0


async def test_states_grow_old_and_go_with_their_version() -> None:
    now = 0.0
    states = HiddenStates(lifetime_s=10.0, clock=lambda: now)
    await keep(states, key("a"), 1)
    now = 6.0
    await keep(states, key("b", "other"), 1)
    now = 12.0
    assert [await has(states, key("a")), await has(states, key("b", "other"))] == [False, True]
    states.forget("other")
    assert len(states) == 0
