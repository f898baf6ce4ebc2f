"""`MemorySummary`: a memory that has its oldest messages summarised when the prompt gets too long.

Never summarised and never left out: the leading system message, the ends that the options keep raw, the latest
user message and the latest turn. Where no summary can be had, the oldest turns are left out of the prompt, never
of the memory, and `report` says so.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

from gradwire.client.agentic.memory.config import MemoryConfig
from gradwire.client.agentic.memory.simple import MemorySimple, PromptReport
from gradwire.client.agentic.memory.summary_client import SummaryClient, SummaryGenerationError
from gradwire.client.agentic.memory.thinking import answer_of
from gradwire.client.agentic.memory.tokens import Message, TokenCounter, content_of

log = logging.getLogger(__name__)

_SUMMARY_HEADING = "\n\n[Historical Information Summary]:\n\n"
_SPARE_TOKENS = 100  # for roles and headings in a summariser's prompt


class MemorySummary(MemorySimple):
    """See the module. `chat_client` writes summaries; default: one of `oai_client` and `oai_model_name`."""

    def __init__(
        self,
        config: MemoryConfig | Mapping[str, Any] | None = None,
        token_counter: TokenCounter | None = None,
        chat_client: SummaryClient | None = None,
    ) -> None:
        super().__init__(config, token_counter)
        self._given_client = chat_client
        self.chat_client = chat_client
        self._covered: set[int] = set()  # ids of messages that the latest summary stands for
        self._failed_at = -1  # messages when a summary last failed: the same ones would fail again
        self._renew_client()

    def get_prompt_messages(self, config: dict[str, Any] | None = None) -> list[Message]:
        """The prompt, summarised first when it is too long and `use_summary` is set. Blocks while it is.

        `config` changes options first. `report` then says what was done; a prompt that is still too long is
        returned as it is, with `over_length` set and a warning in the log.
        """
        with self._lock:
            if config is not None:
                self.update_config(config)
            before, error, dropped = self._num_summarised(), "", 0
            messages = self._get_effective_messages()
            if self.config.use_summary and self._is_overlength(messages):
                messages, error = self._handle_overlength()
            final = self._apply_thinking_filter(self._format_summary_message(messages))
            if self.config.use_summary and self._is_overlength(final):
                final, dropped = self._without_oldest(final)
            length = self._get_total_length(final)
            over = length > self.config.max_prompt_length
            if over:
                log.warning(
                    "PROMPT_TRUNCATION: Prompt length (%d) exceeds max_prompt_length (%d)",
                    length,
                    self.config.max_prompt_length,
                )
            self.report = PromptReport(length, over, self._num_summarised() - before, dropped, error)
            return self._remove_message_other_key(final)

    async def aget_prompt_messages(self, config: dict[str, Any] | None = None) -> list[Message]:
        """`get_prompt_messages` in a thread: an agent's event loop goes on while a summary is written."""
        return await asyncio.to_thread(self.get_prompt_messages, config)

    def clear_memory(self, role: str | None = None, content: str | None = None) -> None:
        """See MemorySimple.clear_memory."""
        with self._lock:
            super().clear_memory(role, content)
            self._covered.clear()
            self._failed_at = -1

    def update_config(self, config: MemoryConfig | Mapping[str, Any]) -> None:
        """See MemorySimple.update_config. A changed client or model is used from now on."""
        with self._lock:
            super().update_config(config)
            self._failed_at = -1
            self._renew_client()

    def _renew_client(self) -> None:
        if self._given_client is not None or self.config.oai_client is None:
            return
        if self.chat_client is None:
            self.chat_client = SummaryClient(self.config.oai_client, self.config.oai_model_name)
        else:
            self.chat_client.update_config(self.config.oai_client, self.config.oai_model_name)

    def _num_summarised(self) -> int:
        return sum(m["id"] in self._covered and m["role"] != "summary" for m in self.messages)

    def _get_effective_messages(self) -> list[Message]:
        """Messages that no summary stands for, and the latest summary."""
        return [message for message in self.get_messages() if message["id"] not in self._covered]

    def _is_overlength(self, messages: list[Message]) -> bool:
        return self._get_total_length(self._format_summary_message(messages)) > self.config.max_prompt_length

    def _format_summary_message(self, messages: list[Message]) -> list[Message]:
        """Summaries at the end of the system message; they become one where there is none."""
        summaries = [message for message in messages if message["role"] == "summary"]
        spoken = [message for message in messages if message["role"] != "summary"]
        if not summaries:
            return spoken
        text = "".join(f"{_SUMMARY_HEADING}{message['content']}\n\n" for message in summaries)
        if spoken and spoken[0]["role"] == "system":
            return [{**spoken[0], "content": spoken[0]["content"] + text}, *spoken[1:]]
        return [{"role": "system", "content": text.strip()}, *spoken]

    def _pinned(self) -> set[int]:
        """Ids of messages that stay."""
        spoken = [message for message in self.messages if message["role"] != "summary"]
        pinned = self._raw_ids()
        if spoken and spoken[0]["role"] == "system":
            pinned.add(spoken[0]["id"])
        users = [message["id"] for message in spoken if message["role"] == "user"]
        pinned.update(users[-1:])
        for message in reversed(spoken):  # the latest turn: tool results belong to the reply that asked for them
            pinned.add(message["id"])
            if message["role"] != "tool":
                break
        return pinned

    def _handle_overlength(self) -> tuple[list[Message], str]:
        """Summarises all that may be; the messages then, and why a summary failed ("" when none did)."""
        error = ""
        if self._failed_at == self._next_id:
            error = "the last summary of these messages failed"
        elif self.chat_client is None:
            error = "use_summary is set, but there is no client: give oai_client or chat_client"
        else:
            try:
                self._summarise(self.chat_client)
            except SummaryGenerationError as failure:
                error = str(failure)
                self._failed_at = self._next_id
        if error:
            log.warning("%s; the oldest turns are left out of the prompt instead", error)
        return self._get_effective_messages(), error

    def _summarise(self, client: SummaryClient) -> None:
        pinned = self._pinned()
        effective = self._get_effective_messages()
        pending = [m for m in effective if m["role"] != "summary" and m["id"] not in pinned]
        while pending:
            batch = self._first_batch(pending)
            text = self._ask(client, batch)
            old = {m["id"] for m in self.messages if m["role"] == "summary"}
            place = max(index for index, m in enumerate(self.messages) if m["id"] == batch[-1]["id"]) + 1
            self._insert({"role": "summary", "content": text}, place)
            self._covered |= old | {message["id"] for message in batch}
            pending = pending[len(batch) :]

    def _room(self) -> int:
        """Tokens of conversation that fit into a summariser's prompt beside its instructions and a summary."""
        used = self.token_counter.count_tokens(self._instructions("")) + self.config.max_summary_length + _SPARE_TOKENS
        return self.config.max_prompt_length - used

    def _first_batch(self, pending: list[Message]) -> list[Message]:
        room, count = self._room(), 0
        for message in pending:
            room -= self.token_counter.count_tokens(_transcript([message]))
            if room < 0:
                break
            count += 1
        return pending[: max(count, 1)]

    def _ask(self, client: SummaryClient, batch: list[Message]) -> str:
        """A summary of what the latest one stands for and of this batch."""
        room = self._room()
        if room < 1:
            raise SummaryGenerationError(
                f"max_prompt_length ({self.config.max_prompt_length}) leaves no room for a summary of "
                f"{self.config.max_summary_length} tokens and the text it is made from"
            )
        latest = [m["content"] for m in self.messages if m["role"] == "summary" and m["id"] not in self._covered]
        summary = latest[-1] if latest else ""
        for piece in self.token_counter.split_text(_transcript(batch), room):
            prompt = [
                {"role": "system", "content": self._instructions(summary)},
                {"role": "user", "content": piece},
            ]
            reply = answer_of(client.generate_chat_completion(prompt, max_tokens=self.config.max_summary_length))
            if not reply:
                raise SummaryGenerationError("the model's summary is empty")
            summary = self.token_counter.truncate(reply, self.config.max_summary_length)
        return summary

    def _instructions(self, summary: str) -> str:
        # Not str.format: a template may have braces of its own.
        length = str(self.config.max_summary_length)
        text = self.config.summary_system_prompt.replace("{max_summary_length}", length)
        return f"{text}{_SUMMARY_HEADING}{summary}" if summary else text

    def _without_oldest(self, messages: list[Message]) -> tuple[list[Message], int]:
        """The prompt with as many of its oldest turns left out as it must be, and how many messages that were."""
        pinned = self._pinned()
        kept, dropped = list(messages), 0
        while self._get_total_length(kept) > self.config.max_prompt_length:
            place = next((i for i, m in enumerate(kept) if "id" in m and m["id"] not in pinned), None)
            if place is None:
                break
            end = place + 1
            while end < len(kept) and kept[end]["role"] == "tool" and kept[end].get("id") not in pinned:
                end += 1  # a tool's result without the call that it answers is no conversation
            dropped += end - place
            del kept[place:end]
        return kept, dropped


def _transcript(messages: list[Message]) -> str:
    """Messages as one text: what servers accept in which order differs too much for roles of their own."""
    lines = []
    for message in messages:
        calls = message.get("tool_calls")
        said = content_of(message) + (f" {json.dumps(calls, ensure_ascii=False)}" if calls else "")
        lines.append(f"{message['role']}: {said}\n")
    return "".join(lines)
