"""Prompts of a call, in any of their forms -> token ids."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from gradwire.server.codec.tensor import token_ids_from_bytes
from gradwire.server.domain.sampling import placed
from gradwire.server.engines.base import Tokenizes
from gradwire.server.engines.sampling import TokenIds
from gradwire.server.errors import InvalidArgument
from gradwire.v1 import sampling_params_pb2, sampling_pb2

_LONG_TEXT = 20_000  # characters of all texts of a call; tokenising more would hold up the event loop


async def prompt_tokens(
    engine: Tokenizes, prompts: Sequence[sampling_params_pb2.Prompt], paths: Sequence[str]
) -> list[TokenIds]:
    """Token ids of each prompt, int32 [P]. Raises InvalidArgument below the prompt's path."""

    def read() -> list[TokenIds]:
        return [_tokens_of(engine, prompt, path) for prompt, path in zip(prompts, paths, strict=True)]

    short = all(p.WhichOneof("content") != "chat" for p in prompts) and sum(len(p.text) for p in prompts) <= _LONG_TEXT
    return read() if short else await asyncio.to_thread(read)


async def scored_tokens(
    engine: Tokenizes, items: Sequence[sampling_pb2.ScoreItem]
) -> list[tuple[TokenIds, TokenIds]]:  # fmt: skip
    """Prompt and completion of each item, int32 [P] and [T]."""
    prompts = await prompt_tokens(
        engine, [item.prompt for item in items], [f"items[{i}].prompt" for i in range(len(items))]
    )

    def read() -> list[TokenIds]:
        return [_completion_of(engine, item, f"items[{i}]") for i, item in enumerate(items)]

    short = sum(len(item.text) for item in items) <= _LONG_TEXT
    completions = read() if short else await asyncio.to_thread(read)
    return list(zip(prompts, completions, strict=True))


def _tokens_of(engine: Tokenizes, prompt: sampling_params_pb2.Prompt, path: str) -> TokenIds:
    with _at(path):
        match prompt.WhichOneof("content"):
            case "token_ids":
                return token_ids_from_bytes(prompt.token_ids, "prompt.token_ids")
            case "chat":
                chat = prompt.chat
                messages: list[dict[str, object]] = [{"role": m.role, "content": m.content} for m in chat.messages]
                generate = chat.add_generation_prompt if chat.HasField("add_generation_prompt") else True
                return engine.apply_chat_template(messages, add_generation_prompt=generate)
            case "text":
                return engine.tokenize(prompt.text)
            case _:
                raise InvalidArgument.at("prompt", "is empty; give text, token_ids or chat")


def _completion_of(engine: Tokenizes, item: sampling_pb2.ScoreItem, path: str) -> TokenIds:
    with _at(path):
        match item.WhichOneof("completion"):
            case "token_ids":
                return token_ids_from_bytes(item.token_ids, "prompt.token_ids")
            case "text":
                return engine.tokenize(item.text, add_special_tokens=False)
            case _:
                return np.empty(0, dtype=np.int32)


@contextmanager
def _at(path: str) -> Iterator[None]:
    """What is wrong with a "prompt" is wrong with what stands at `path`."""
    try:
        yield
    except InvalidArgument as error:
        raise placed(error, path) from error
