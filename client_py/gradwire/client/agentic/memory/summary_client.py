"""`SummaryClient`: asks a model for a summary through an OpenAI client."""

from __future__ import annotations

import logging
import time
from typing import Any

from gradwire.client._core.extras import extra

log = logging.getLogger(__name__)


class SummaryGenerationError(Exception):
    """No summary could be had; the cause says why."""


class SummaryClient:
    """Chat completions of one model.

    Args:
        client: an `openai.OpenAI`.
        model_name: the model.

    Raises:
        TypeError: the client is no `openai.OpenAI`.
        ImportError: openai is not installed.
        ValueError: the name is empty.
    """

    def __init__(self, client: Any, model_name: str) -> None:
        self.client, self.model_name = _checked(client, model_name)

    def update_config(self, client: Any, model_name: str) -> None:
        """Another client or model from now on."""
        self.client, self.model_name = _checked(client, model_name)

    def generate_chat_completion(
        self,
        messages: list[dict[str, Any]],
        max_retries: int = 3,
        retry_delay: float = 5,
        timeout: float = 3600,
        **parameters: Any,
    ) -> str:
        """The model's reply, "" when it has no text.

        Tries `max_retries` times in all, `retry_delay` seconds apart, when the server is busy or does not
        answer in `timeout` seconds. SummaryGenerationError for everything else, and after the last try.
        """
        from openai import APITimeoutError, OpenAIError, RateLimitError  # `_checked` has found it

        tries = max(1, max_retries)
        # The client's own retries would multiply ours.
        client = self.client.with_options(max_retries=0, timeout=timeout)
        for number in range(1, tries + 1):
            try:
                response = client.chat.completions.create(model=self.model_name, messages=messages, **parameters)
                return response.choices[0].message.content or ""
            except (RateLimitError, APITimeoutError) as error:
                if number == tries:
                    raise SummaryGenerationError(f"no summary after {tries} tries: {error}") from error
                log.warning("summary, try %d of %d: %s", number, tries, error)
                time.sleep(retry_delay)
            except (OpenAIError, IndexError) as error:
                raise SummaryGenerationError(f"no summary: {error}") from error
        raise AssertionError("the last try returns or raises")


def _checked(client: Any, model_name: str) -> tuple[Any, str]:
    with extra("agentic", "SummaryClient"):
        from openai import OpenAI

    if not isinstance(client, OpenAI):
        raise TypeError(f"client must be an openai.OpenAI, got {type(client).__name__}")
    if not isinstance(model_name, str) or not model_name.strip():
        raise ValueError("model_name must be a non-empty string")
    return client, model_name
