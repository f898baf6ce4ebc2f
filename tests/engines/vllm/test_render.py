"""Text to tokens, as Hugging Face's tokenizer does it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from gradwire.server.engines.render import Renderer
from gradwire.server.errors import InvalidArgument
from gradwire.server.models.resolve import resolve_model

FOLDER = str(resolve_model("tiny"))
MESSAGES: list[dict[str, object]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hí ✓"}]


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return Renderer(FOLDER)


@pytest.mark.parametrize("text", ["", "Hello", "línea\n\tdos ✓ <|im_end|>", "x" * 3000])
@pytest.mark.parametrize("special", [True, False])
def test_tokenize(renderer: Renderer, text: str, special: bool) -> None:
    tokens = renderer.tokenize(text, add_special_tokens=special)
    expected: Any = AutoTokenizer.from_pretrained(FOLDER)
    assert tokens.dtype == np.int32
    assert tokens.tolist() == expected.encode(text, add_special_tokens=special)
    assert expected.decode(tokens) == text


@pytest.mark.parametrize("generation", [True, False])
def test_chat(renderer: Renderer, generation: bool) -> None:
    expected: Any = AutoTokenizer.from_pretrained(FOLDER)
    text = expected.apply_chat_template(MESSAGES, add_generation_prompt=generation, tokenize=False)
    tokens = renderer.apply_chat_template(MESSAGES, add_generation_prompt=generation)
    assert expected.decode(tokens) == text
    assert text.endswith("<|im_start|>assistant\n") == generation


@pytest.mark.parametrize("messages", [[], [{"role": "user"}], [{"content": 7}]])
def test_messages_that_the_template_refuses(renderer: Renderer, messages: list[dict[str, object]]) -> None:
    with pytest.raises(InvalidArgument, match="messages"):
        renderer.apply_chat_template(messages, add_generation_prompt=True)


def test_model_without_a_template(renderer: Renderer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renderer._tokenizer, "chat_template", None)
    assert not renderer.has_chat_template
    with pytest.raises(InvalidArgument, match="no chat template"):
        renderer.apply_chat_template(MESSAGES, add_generation_prompt=True)


def test_many_threads_at_once(renderer: Renderer) -> None:
    texts = [f"text {number} " * 50 for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        tokens = list(pool.map(lambda text: renderer.tokenize(text, add_special_tokens=True), texts))
    assert [bytes(ids.astype(np.uint8)).decode() for ids in tokens] == texts  # tiny's ids are bytes
