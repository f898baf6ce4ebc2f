"""`MemoryConfig`: what an agent's memory keeps as it was said, what it shortens, and how long a prompt may be."""

from __future__ import annotations

import difflib
import warnings
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_PROMPT_LENGTH = 128 * 1024

SUMMARY_SYSTEM_PROMPT = """\
You are a summariser. Write a precise and complete summary of the conversation that follows.
1. Begin with one or two sentences that say what it is about or what was concluded.
2. Then list what is needed to go on: data, results of tools, decisions, names, times. Be specific.
3. End with what is still open, if anything is.
Keep names, numbers and terms exactly as they are, tell who held which view, keep the order of events, add nothing
of your own, and leave out what is repeated. Write at most {max_summary_length} tokens.
"""


class MemoryConfig(BaseModel):
    """Options of a memory. Assignment is checked; a refused change leaves everything as it was.

    Raises pydantic.ValidationError (a ValueError) for a value of a wrong type or out of range, and for an unknown
    field.
    """

    model_config = ConfigDict(validate_assignment=True, arbitrary_types_allowed=True, extra="forbid")

    simplify_thinking: bool = Field(default=False, description="Replace <think> blocks of replies by a short note.")
    use_summary: bool = Field(default=False, description="Summarise the oldest messages when the prompt is too long.")
    max_summary_length: int = Field(default=1024, ge=1, description="Tokens of a summary, at most max_prompt_length.")
    max_prompt_length: int = Field(default=8192, ge=1, le=MAX_PROMPT_LENGTH, description="Tokens of the prompt.")
    before_raw_message: int = Field(default=0, ge=0, description="First messages that stay as they are.")
    end_raw_message: int = Field(
        default=0, le=0, description="Minus the number of last messages that stay as they are."
    )
    summary_system_prompt: str = Field(default=SUMMARY_SYSTEM_PROMPT, description="May name {max_summary_length}.")
    oai_client: Any = Field(
        default=None, description="openai.OpenAI client that writes summaries.", exclude=True, repr=False
    )
    oai_model_name: str = Field(default="qwen2.5-7b-instruct", description="Model that writes summaries.")
    train_model_tokenizer_path: str = Field(default="", description="Folder of the tokenizer that measures prompts.")

    @model_validator(mode="after")
    def _summary_fits_prompt(self) -> Self:
        if self.max_summary_length > self.max_prompt_length:
            raise ValueError(
                f"max_summary_length ({self.max_summary_length}) must not exceed "
                f"max_prompt_length ({self.max_prompt_length})"
            )
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self).model_fields:
            self._replace({name: value})
        else:
            super().__setattr__(name, value)

    def update(self, changes: MemoryConfig | BaseModel | dict[str, Any] | None) -> None:
        """Changes several options at once: all of them, or none when one is refused.

        Keys may be written with "-" for "_". A key that is no option is passed over with a warning, since
        callers hand in the options of a whole agent.
        """
        if changes is None:
            return
        if isinstance(changes, BaseModel):
            changes = {name: getattr(changes, name) for name in changes.model_fields_set}
        known = {}
        for key, value in changes.items():
            name = key.replace("-", "_")
            if name in type(self).model_fields:
                known[name] = value
            else:
                near = difflib.get_close_matches(name, type(self).model_fields, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                warnings.warn(f"{key!r} is no option of a memory and is passed over{hint}", stacklevel=2)
        self._replace(known)

    def _replace(self, changes: dict[str, Any]) -> None:
        values = {name: getattr(self, name) for name in type(self).model_fields}
        checked = type(self).model_validate({**values, **changes})
        # pydantic's own assignment checks the whole after it has changed it, and leaves it changed on a refusal.
        self.__dict__.update(checked.__dict__)
        self.__pydantic_fields_set__.update(changes)
