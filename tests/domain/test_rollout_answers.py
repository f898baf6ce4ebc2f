"""Answers that are kept, and their readers: what a server's end, or an answer that cannot be written, leaves behind."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from gradwire.server.domain.rollouts.answer import Answer
from gradwire.server.domain.rollouts.answers import Answers, Reading
from gradwire.server.domain.rollouts.requests import Request

REQUEST = Request("content", "name", retries=0, twin="twin")


async def begun(answers: Answers) -> tuple[Answer, Reading]:
    """One that is being made, for ever, and its reader."""
    answer = answers.begin(REQUEST)
    answer.task = asyncio.ensure_future(asyncio.sleep(60))
    await asyncio.sleep(0)
    return answer, answers.read(answer, REQUEST)


async def test_the_last_of_a_reader_that_was_followed_does_not_end_the_next_ones() -> None:
    answers = Answers(lambda size: None, itertools.count().__next__)
    answer, first = await begun(answers)
    first.settle(lost=True)
    leaving = asyncio.ensure_future(first.left())
    await asyncio.sleep(0)
    answers.read(answer, REQUEST)
    leaving.cancel()  # before it could see that it is followed
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await asyncio.sleep(0)
    assert answer.task is not None and not answer.task.done() and answers.find(REQUEST) is answer
    answers.give_up(answer)


async def test_an_answer_that_cannot_be_written_waits_for_nobody() -> None:
    sizes: list[int] = []
    answers = Answers(sizes.append, itertools.count().__next__)
    answer, only = await begun(answers)
    answer.put({"text": "\ud800"})
    only.failed()
    await asyncio.sleep(0)
    assert answer.task is not None and answer.task.cancelled()
    assert answers.find(REQUEST) is None and sum(sizes) == 0
