"""A message to a deployed language model: checked, and made into a prompt with what stands before it.

Knows: system prompts, chat templates, how much of the context a reply gets. Does not know: turns, or how replies are
sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gradwire.server.domain.caller import Caller
from gradwire.server.domain.deployments import Deployment, LanguageModel
from gradwire.server.domain.params import resolve
from gradwire.server.domain.registry import SamplingJob
from gradwire.server.domain.sessions import Message
from gradwire.server.domain.window import Window, fit
from gradwire.server.engines.base import SamplerEngine
from gradwire.server.engines.sampling import TokenIds
from gradwire.server.errors import FieldViolation, InvalidArgument

_BYTES_PER_TOKEN = 64
"""More than texts have, a whole context long: what is longer is not worth the seconds that counting tokens takes."""


class Asked:
    """A message to a deployment. Counting its tokens blocks: use a thread."""

    def __init__(
        self, caller: Caller, deployment: Deployment, prompt: str, path: str, given: Mapping[str, Any], stream: bool
    ) -> None:
        source, job = deployment.source, deployment.job
        assert isinstance(source, LanguageModel) and job is not None, "`Deployment.require` has seen to it"
        self.caller = caller
        self.deployment = deployment
        self.prompt = prompt
        self.path = path
        self.stream = stream
        self.job: SamplingJob = job
        self.engine: SamplerEngine = job.engine
        self._system = [Message("system", source.system_prompt)] if source.system_prompt else []
        job.require_working()
        self.params = resolve({**source.params, **given}, max_log_probs=self.engine.info.max_log_probs)
        if self.params.n != 1:
            raise InvalidArgument.at("params.n", f"is {self.params.n}; a conversation has one reply")
        if self.params.prompt_log_probs is not None:
            raise InvalidArgument.at("params.prompt_log_probs", "is not for replies; score texts with SamplingService")

    def check(self) -> None:
        """Raises InvalidArgument when the message cannot be answered, whatever stands before it."""
        try:
            self.prompt.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument.at(self.path, "holds half a character (a lone surrogate)") from error
        if not self.prompt.strip():
            raise InvalidArgument.at(self.path, "is empty")
        context = self.engine.info.max_model_len
        if len(self.prompt.encode()) > context * _BYTES_PER_TOKEN:
            raise InvalidArgument.at(
                self.path,
                f"is {len(self.prompt)} characters, far more than the context of {context} tokens has room for",
                reason="PROMPT_TOO_LONG",
            )
        self._fit([Message("user", self.prompt)], context - 1)

    def window(self, history: Sequence[Message]) -> Window:
        """The messages that go into the prompt: a part of the context is left to the reply."""
        context = self.engine.info.max_model_len
        room = min(self.params.max_tokens, max(1, context // 4))
        recent = _newest(history, context * _BYTES_PER_TOKEN)
        try:
            found = self._fit(recent, context - room)
            return replace(found, num_dropped_messages=found.num_dropped_messages + len(history) - len(recent))
        except InvalidArgument as error:
            if error.reason != "PROMPT_TOO_LONG":
                raise
        # The last message alone leaves the reply less than that, but it fits: `check` has seen to it.
        last = self._fit(history[-1:], context - 1)
        return replace(last, num_dropped_messages=len(history) - 1)

    def tokens(self, messages: Sequence[Message]) -> TokenIds:
        """The prompt: by the model's chat template; without one, the texts with a newline between."""
        if not self.engine.info.has_chat_template:
            return self.engine.tokenize("\n".join(message.content for message in messages))
        return self.engine.apply_chat_template([{"role": m.role, "content": m.content} for m in messages])

    def _fit(self, history: Sequence[Message], budget: int) -> Window:
        try:
            return fit([*self._system, *history], lambda messages: len(self.tokens(messages)), budget)
        except InvalidArgument as error:
            violations = [FieldViolation(self.path, v.description) for v in error.violations]
            raise InvalidArgument(violations, reason=error.reason) from error

    def prepare(self, history: Sequence[Message]) -> tuple[Window, TokenIds]:
        """Window and prompt."""
        window = self.window(history)
        return window, self.tokens(window.messages)


def _newest(history: Sequence[Message], max_bytes: int) -> Sequence[Message]:
    """The last messages that are at most so many bytes, the very last one in any case."""
    size = 0
    for count, message in enumerate(reversed(history)):
        size += len(message.content.encode())
        if size > max_bytes and count:
            return history[-count:]
    return history
