"""`MemorySimple`: the messages of one conversation, and the prompt that they make."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from gradwire.client.agentic.memory.config import MemoryConfig
from gradwire.client.agentic.memory.thinking import simplified, simplify_thinking
from gradwire.client.agentic.memory.tokens import Message, TokenCounter, make_counter

# What a chat template or an OpenAI server may need of a message; everything else is the memory's own.
PROMPT_KEYS = ("role", "content", "tool_calls", "tool_call_id", "name")


@dataclass(frozen=True, slots=True)
class PromptReport:
    """How the last prompt came about.

    `num_tokens` is its length; `over_length` whether that exceeds max_prompt_length all the same; `num_summarised`
    and `num_dropped` count messages that a summary stands for, and that were left out without one; `error` says why
    a summary could not be had, "" when none was wanting.
    """

    num_tokens: int
    over_length: bool = False
    num_summarised: int = 0
    num_dropped: int = 0
    error: str = ""


class MemorySimple:
    """Keeps messages and gives them back as a prompt. Safe to use from several threads.

    Args:
        config: options, a MemoryConfig or a mapping of its fields.
        token_counter: measures prompts. Default: by `train_model_tokenizer_path`.
    """

    def __init__(
        self, config: MemoryConfig | Mapping[str, Any] | None = None, token_counter: TokenCounter | None = None
    ) -> None:
        self.config = MemoryConfig()
        self.config.update(_options(config))
        self._own_counter = token_counter is None
        self.token_counter: TokenCounter = token_counter or make_counter(self.config.train_model_tokenizer_path)
        self.messages: list[Message] = []
        self.report: PromptReport | None = None
        self._next_id = 0
        self._lengths: dict[int, int] = {}
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self.messages)

    def add_message(
        self,
        message: Message | list[Message],
        user_id: str | None = None,
        session_id: str | None = None,
        insert_id: int | None = None,
        **metadata: Any,
    ) -> None:
        """Adds one message or several, at the end or before position `insert_id`.

        A message has a `role` and a `content`; a reply that only calls tools may have None as its content. Copies
        are kept, each with an `id` and the UTC `time` of its arrival. `user_id`, `session_id` and `metadata` are
        accepted and not used. ValueError for what is no message; then nothing is added.
        """
        checked = [_checked(item) for item in (message if isinstance(message, list) else [message])]
        if insert_id is not None and (isinstance(insert_id, bool) or not isinstance(insert_id, int)):
            raise ValueError(f"insert_id must be an integer, got {type(insert_id).__name__}")
        with self._lock:
            place = len(self.messages) if insert_id is None else insert_id
            for offset, item in enumerate(checked):
                self._insert(item, place + offset if place >= 0 else place)

    def _insert(self, message: Message, place: int) -> int:
        number, self._next_id = self._next_id, self._next_id + 1
        message["id"] = number
        message.setdefault("time", datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"))
        self.messages.insert(place, message)
        return number

    def get_messages(self) -> list[Message]:
        """All messages with their ids and times, as copies."""
        with self._lock:
            return copy.deepcopy(self.messages)

    def get_window_messages(self, limit_size: int = -1) -> list[Message]:
        """The last `limit_size` messages as a prompt has them; all of them for -1."""
        if isinstance(limit_size, bool) or not isinstance(limit_size, int) or limit_size < -1:
            raise ValueError(f"limit_size must be an integer from -1, got {limit_size!r}")
        messages = self.get_messages()
        kept = messages if limit_size == -1 else messages[len(messages) - min(limit_size, len(messages)) :]
        return self._remove_message_other_key(kept)

    def clear_memory(self, role: str | None = None, content: str | None = None) -> None:
        """Forgets all messages; with `role` and `content`, begins anew with that one."""
        if (role is None) != (content is None):
            raise ValueError("role and content go together: give both or neither")
        first = None if role is None else _checked({"role": role, "content": content})
        with self._lock:
            self.messages.clear()
            self._lengths.clear()
            self.report = None
            if first is not None:
                self._insert(first, 0)

    def get_prompt_messages(self, config: dict[str, Any] | None = None) -> list[Message]:
        """The prompt: messages without ids and times, thinking shortened where `simplify_thinking` is set.

        `config` changes options first. `report` then says how long the prompt is.
        """
        with self._lock:
            if config is not None:
                self.update_config(config)
            messages = self._apply_thinking_filter(self.get_messages())
            length = self._get_total_length(messages)
            self.report = PromptReport(length, length > self.config.max_prompt_length)
            return self._remove_message_other_key(messages)

    def get_message_length(self, message: Message) -> int:
        """Tokens of one message."""
        number = message.get("id")
        if not isinstance(number, int):
            return self.token_counter.count_message(message)
        with self._lock:
            if number not in self._lengths:
                self._lengths[number] = self.token_counter.count_message(message)
            return self._lengths[number]

    def get_total_length(self, messages: list[Message] | None = None) -> int:
        """Tokens of the prompt that these messages make; of all that are kept by default."""
        return self._get_total_length(self.get_messages() if messages is None else messages)

    def update_config(self, config: MemoryConfig | Mapping[str, Any]) -> None:
        """Changes options, all or none."""
        with self._lock:
            path = self.config.train_model_tokenizer_path
            self.config.update(_options(config))
            if self._own_counter and self.config.train_model_tokenizer_path != path:
                self.token_counter = make_counter(self.config.train_model_tokenizer_path)
                self._lengths.clear()

    @staticmethod
    def simplify_or_remove_think(
        messages: list[Message] | str, start_id: int = 0, end_id: int = -1
    ) -> list[Message] | str:
        """A text, or messages [start_id, end_id) (-1: to the end), with thinking of replies shortened."""
        if isinstance(messages, str):
            return simplify_thinking(messages)
        end = len(messages) if end_id == -1 else end_id
        return [simplified(message) if start_id <= index < end else message for index, message in enumerate(messages)]

    def _get_total_length(self, messages: list[Message]) -> int:
        return self.token_counter.count_messages(self._remove_message_other_key(messages))

    def _apply_thinking_filter(self, messages: list[Message]) -> list[Message]:
        """By message and not by position: the ends that stay raw are those of the conversation itself."""
        if not self.config.simplify_thinking:
            return messages
        raw = self._raw_ids()
        return [message if message.get("id") in raw else simplified(message) for message in messages]

    def _raw_ids(self) -> set[int]:
        spoken = [message["id"] for message in self.messages if message["role"] != "summary"]
        end = len(spoken) + self.config.end_raw_message
        return {*spoken[: self.config.before_raw_message], *spoken[max(end, 0) :]}

    @staticmethod
    def _remove_message_other_key(messages: Iterable[Message], save_keys: Iterable[str] | None = None) -> list[Message]:
        kept = PROMPT_KEYS if save_keys is None else tuple(save_keys)
        return [{key: message[key] for key in kept if key in message} for message in messages]


def _options(config: MemoryConfig | Mapping[str, Any] | None) -> MemoryConfig | dict[str, Any] | None:
    if config is None or isinstance(config, BaseModel):
        return config
    if not isinstance(config, Mapping):
        raise ValueError(f"config must be a dictionary or None, got {type(config).__name__}")
    return dict(config)


def _checked(message: Any) -> Message:
    """A copy of a message; ValueError for what is none."""
    if not isinstance(message, Mapping) or not all(isinstance(key, str) for key in message):
        raise ValueError(f"a message must be a dictionary with string keys, got {type(message).__name__}")
    for key in ("role", "content"):
        if key not in message:
            raise ValueError(f"a message must have the key {key!r}; this one has {sorted(message)}")
    if not isinstance(message["role"], str) or not message["role"]:
        raise ValueError("a message's role must be a non-empty string")
    calls_only = message["content"] is None and message.get("tool_calls")
    if not isinstance(message["content"], str) and not calls_only:
        raise ValueError(f"a message's content must be a string, got {type(message['content']).__name__}")
    return copy.deepcopy(dict(message))
