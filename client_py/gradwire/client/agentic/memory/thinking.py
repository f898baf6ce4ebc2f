"""`<think>` blocks of replies: taken out of prompts where the memory is told to."""

from __future__ import annotations

import re
from typing import Any

THINKING_OMITTED = "<think>Thinking process omitted.</think>"
_BLOCK = re.compile(r"<think>.*?</think>", re.DOTALL)
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def simplify_thinking(text: str) -> str:
    """A text with each closed `<think>` block replaced by a note."""
    return _BLOCK.sub(THINKING_OMITTED, text)


def simplified(message: dict[str, Any]) -> dict[str, Any]:
    """A message with its thinking shortened, if it is a reply; what was given is not changed."""
    if message.get("role") != "assistant" or not isinstance(message.get("content"), str):
        return message
    return {**message, "content": simplify_thinking(message["content"])}


def answer_of(reply: str) -> str:
    """What a model's reply says once its thinking is left out: inside `<answer>` where it has that."""
    spoken = _BLOCK.sub("", reply)
    found = _ANSWER.search(spoken)
    return (found.group(1) if found else spoken).strip()
