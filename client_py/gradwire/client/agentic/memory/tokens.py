"""How long a prompt is, in tokens: by the model's own tokenizer and chat template, or by a rule of thumb."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from gradwire.client._core.extras import extra

log = logging.getLogger(__name__)

Message = dict[str, Any]
MESSAGE_OVERHEAD = 4
"""Tokens that a message costs beside its content where no chat template tells."""
_CHARACTERS_PER_TOKEN = 4


class TokenCounter(Protocol):
    """Counts and cuts text by tokens."""

    def count_tokens(self, text: str) -> int:
        """Tokens of a text."""

    def count_message(self, message: Message) -> int:
        """Tokens of one message."""

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of the prompt that these messages make."""

    def truncate(self, text: str, max_tokens: int) -> str:
        """The beginning of a text."""

    def split_text(self, text: str, chunk_tokens: int) -> list[str]:
        """A text in pieces that join to it."""


class SimpleTokenCounter:
    """Four characters a token: for when there is no tokenizer."""

    def count_tokens(self, text: str) -> int:
        """Tokens of a text; 0 only for an empty one."""
        return max(1, len(text) // _CHARACTERS_PER_TOKEN) if text else 0

    def count_message(self, message: Message) -> int:
        """Tokens of one message."""
        return self.count_tokens(content_of(message)) + MESSAGE_OVERHEAD

    def count_messages(self, messages: Sequence[Message]) -> int:
        """The sum over messages."""
        return sum(map(self.count_message, messages))

    def truncate(self, text: str, max_tokens: int) -> str:
        """The beginning of a text."""
        return text[: max_tokens * _CHARACTERS_PER_TOKEN]

    def split_text(self, text: str, chunk_tokens: int) -> list[str]:
        """A text in pieces of `chunk_tokens`."""
        size = max(1, chunk_tokens) * _CHARACTERS_PER_TOKEN
        return [text[begin : begin + size] for begin in range(0, len(text), size)]


class HuggingFaceTokenCounter:
    """Counts as the model does: with the tokenizer of a local folder, and its chat template where it has one.

    OSError or ValueError when the folder has no tokenizer, ImportError without transformers. Nothing is downloaded, and
    no code of the folder runs.
    """

    def __init__(self, path: str) -> None:
        with extra("agentic", "HuggingFaceTokenCounter"):
            from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)

    def count_tokens(self, text: str) -> int:
        """Tokens of a text, without special ones."""
        return len(self._ids(text))

    def count_message(self, message: Message) -> int:
        """Tokens of one message, without the chat template."""
        return self.count_tokens(content_of(message)) + MESSAGE_OVERHEAD

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of the whole prompt as the chat template writes it, the reply's opening included."""
        if messages and getattr(self._tokenizer, "chat_template", None):
            try:
                ids = self._tokenizer.apply_chat_template(
                    list(messages), tokenize=True, add_generation_prompt=True, return_dict=False
                )
                return len(ids)
            except Exception as error:  # a template refuses by whatever exception its author chose
                log.debug("the chat template refuses these messages (%s); counting them one by one", error)
        return sum(map(self.count_message, messages))

    def truncate(self, text: str, max_tokens: int) -> str:
        """The beginning of a text."""
        ids = self._ids(text)
        if len(ids) <= max_tokens:
            return text
        # A character of several tokens may be cut in the middle.
        return str(self._tokenizer.decode(ids[:max_tokens])).rstrip("\ufffd")

    def split_text(self, text: str, chunk_tokens: int) -> list[str]:
        """A text in pieces of at most about `chunk_tokens`, cut between characters."""
        pieces, rest = [], text
        while rest:
            # By characters that the last piece's tokens stood for: decoding ids may not give the text back.
            piece = rest[: max(1, chunk_tokens * _CHARACTERS_PER_TOKEN)]
            while len(piece) > 1 and self.count_tokens(piece) > chunk_tokens:
                piece = piece[: max(1, len(piece) * 3 // 4)]
            pieces.append(piece)
            rest = rest[len(piece) :]
        return pieces

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False)) if text else []


def make_counter(path: str) -> TokenCounter:
    """The counter of a tokenizer's folder; without one, or when it cannot be read (a warning then), the simple one."""
    if not path:
        return SimpleTokenCounter()
    try:
        return HuggingFaceTokenCounter(path)
    except (ImportError, OSError, ValueError) as error:
        log.warning("no tokenizer at %r (%s): prompt lengths are estimated", path, error)
        return SimpleTokenCounter()


def content_of(message: Message) -> str:
    """Text of a message; a reply of tool calls alone has none."""
    content = message.get("content")
    return content if isinstance(content, str) else ""
