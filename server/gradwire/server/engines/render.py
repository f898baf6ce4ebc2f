"""Text to tokens.

Works on a tokenizer of its own, straight on its Rust core where there is one: that core may be used
from several threads, while the Python layer over it changes its settings from call to call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradwire.server.engines.sampling import ModelInfo, TokenIds
from gradwire.server.errors import InvalidArgument


class Renderer:
    """Tokenizer of one model folder. Methods block; all may be called from any thread."""

    def __init__(self, folder: str) -> None:
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._core: Any = getattr(self._tokenizer, "backend_tokenizer", None)
        if self._core is not None:  # a tokenizer.json may ask for both
            self._core.no_truncation()
            self._core.no_padding()

        # Characters of the longest token: no text can be tokenised to less than length / this.
        self.longest_token = max(map(len, self._tokenizer.get_vocab()))

    @property
    def has_chat_template(self) -> bool:
        """Whether conversations can be rendered."""
        return bool(self._tokenizer.chat_template)

    @property
    def eos_token_id(self) -> int | None:
        """The tokenizer's end-of-sequence token."""
        value: int | None = self._tokenizer.eos_token_id
        return value

    def tokenize(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        """int32 [T]."""
        if self._core is not None:
            ids = self._core.encode(text, add_special_tokens=add_special_tokens).ids
        else:
            ids = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return np.array(ids, dtype=np.int32)

    def apply_chat_template(self, messages: Sequence[dict[str, object]], *, add_generation_prompt: bool) -> TokenIds:
        """int32 [T]. Raises InvalidArgument without a template, and when the template refuses."""
        if not self.has_chat_template:
            raise InvalidArgument.at("messages", "this model has no chat template; send text or token ids")
        if not messages:
            raise InvalidArgument.at("messages", "is empty; give at least one message")
        try:
            text = self._tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=add_generation_prompt, tokenize=False
            )
        # A template is a program of the model's author: it raises what it likes about messages.
        except Exception as error:
            raise InvalidArgument.at("messages", f"the model's chat template refuses them: {error}") from error
        return self.tokenize(text, add_special_tokens=False)


def check_length(characters: int, model: ModelInfo, longest_token: int) -> None:
    """Raises InvalidArgument for a text that can never fit, before seconds are spent on tokenising it.

    A normaliser may shorten a text first, by a little: hence twice what the longest token allows.
    """
    if characters > 2 * longest_token * model.max_model_len:
        raise InvalidArgument.at(
            "prompt.text",
            f"{characters} characters cannot fit in the context of {model.max_model_len} tokens",
            reason="PROMPT_TOO_LONG",
        )
