"""Prompts become token ids off the event loop where they are long, and errors name them by the request's paths."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from gradwire.server.engines.sampling import TokenIds
from gradwire.server.errors import InvalidArgument
from gradwire.server.rpc.prompts import prompt_tokens, scored_tokens
from gradwire.v1.sampling_params_pb2 import Prompt
from gradwire.v1.sampling_pb2 import ScoreItem


class Tokenizer:
    """A token a character; refuses an "x", as an engine refuses what cannot fit."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def tokenize(self, text: str, *, add_special_tokens: bool = True) -> TokenIds:
        self.threads.add(threading.get_ident())
        if "x" in text:
            raise InvalidArgument.at("prompt.text", "is too long")
        return np.frombuffer(text.encode(), np.uint8).astype(np.int32)

    def apply_chat_template(
        self, messages: Sequence[dict[str, object]], *, add_generation_prompt: bool = True
    ) -> TokenIds:
        raise InvalidArgument.at("messages[0].role", "is unknown")


async def test_many_short_texts_are_one_long_text_to_the_event_loop() -> None:
    engine = Tokenizer()
    await prompt_tokens(engine, [Prompt(text="a" * 10_000)], ["prompt"])
    assert engine.threads == {threading.get_ident()}
    engine.threads.clear()
    found = await prompt_tokens(engine, [Prompt(text="a" * 10_000)] * 3, ["a", "b", "c"])
    assert [len(tokens) for tokens in found] == [10_000] * 3
    assert threading.get_ident() not in engine.threads
    engine.threads.clear()
    await scored_tokens(engine, [ScoreItem(prompt=Prompt(token_ids=b"\1\0\0\0"), text="a" * 10_000)] * 3)
    assert threading.get_ident() not in engine.threads


@pytest.mark.parametrize(
    ("item", "path"),
    [
        (ScoreItem(prompt=Prompt(text="x"), text="a"), "items[1].prompt.text"),
        (ScoreItem(prompt=Prompt(text="a"), text="x"), "items[1].text"),
        (ScoreItem(prompt=Prompt(text="a"), token_ids=b"\1"), "items[1].token_ids"),
        (ScoreItem(prompt=Prompt(token_ids=b"\1"), text="a"), "items[1].prompt.token_ids"),
        (ScoreItem(text="a"), "items[1].prompt"),
    ],
)
async def test_what_is_wrong_with_an_item_is_named_by_its_own_path(item: ScoreItem, path: str) -> None:
    good = ScoreItem(prompt=Prompt(text="a"), text="b")
    with pytest.raises(InvalidArgument) as caught:
        await scored_tokens(Tokenizer(), [good, item])
    assert [violation.field for violation in caught.value.violations] == [path]
