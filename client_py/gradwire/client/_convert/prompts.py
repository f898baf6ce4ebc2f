"""Prompts as callers write them, to messages.

Knows: which form a prompt has and where a list of prompts ends. Does not know: templates or tokenizers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradwire.client._convert.nearest import check_names
from gradwire.client._convert.tensors import is_torch, token_bytes
from gradwire.client._core.arguments import given
from gradwire.v1 import sampling_params_pb2 as pb

_FORMS = "text, token ids, or a list of chat messages like {'role': 'user', 'content': ...}"


def prompts_to_proto(prompts: Any) -> list[pb.Prompt]:
    """One message a prompt, of one prompt or a list of them."""
    if is_one_prompt(prompts, "prompts"):
        return [prompt_to_proto(prompts, "prompt")]
    items = list(prompts)
    if not items:
        raise ValueError(f"prompts is empty; give one or more: each is {_FORMS}")
    return [prompt_to_proto(item, f"prompts[{i}]") for i, item in enumerate(items)]


def is_one_prompt(value: Any, where: str) -> bool:
    """It is one prompt, not a list of them. TypeError when it is neither."""
    if isinstance(value, str):
        return True
    if isinstance(value, np.ndarray) or is_torch(value):
        return bool(value.ndim == 1)
    if isinstance(value, Mapping) or not isinstance(value, Sequence) or isinstance(value, bytes):
        raise TypeError(f"{where} is {given(value)}; a prompt is {_FORMS}")
    # A list of numbers is token ids, a list of mappings a conversation; anything else is a list of prompts.
    return bool(value) and isinstance(value[0], int | np.integer | Mapping)


def prompt_to_proto(value: Any, where: str) -> pb.Prompt:
    """A Prompt of one text, row of token ids or conversation."""
    if isinstance(value, str):
        if not value:
            raise ValueError(f"{where} is empty text; a prompt holds at least one token")
        return pb.Prompt(text=encodable(value, where))
    if not is_one_prompt(value, where):
        if isinstance(value, Sequence) and not value:
            raise ValueError(f"{where} is an empty {type(value).__name__}; a prompt holds at least one token")
        raise TypeError(f"{where} is a {type(value).__name__} of {type(value).__name__}s; a prompt is {_FORMS}")
    if len(value) and isinstance(value[0], Mapping):
        messages = [_message(item, f"{where}[{i}]") for i, item in enumerate(value)]
        return pb.Prompt(chat=pb.Chat(messages=messages))
    return pb.Prompt(token_ids=token_bytes(value, where))


def _message(item: Any, where: str) -> pb.ChatMessage:
    if not isinstance(item, Mapping):
        raise TypeError(f"{where} is a {type(item).__name__}; a chat message is {{'role': ..., 'content': ...}}")
    check_names(f"{where} key", item, ("role", "content"), TypeError)
    if not isinstance(item.get("role"), str) or not isinstance(item.get("content"), str):
        raise TypeError(f"{where} needs a role and a content, both text")
    return pb.ChatMessage(role=encodable(item["role"], where), content=encodable(item["content"], where))


def encodable(text: str, where: str) -> str:
    """The text. ValueError when it holds half a surrogate pair, which has no UTF-8."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{where} is no text: character {error.start} is half a surrogate pair") from None
    return text
