"""Options of a memory: checked as a whole, changed as a whole."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from gradwire.client.agentic import MemoryConfig


def test_defaults_are_the_documented_ones() -> None:
    config = MemoryConfig()
    assert (config.simplify_thinking, config.use_summary) == (False, False)
    assert (config.max_summary_length, config.max_prompt_length) == (1024, 8192)
    assert (config.before_raw_message, config.end_raw_message) == (0, 0)
    assert "{max_summary_length}" in config.summary_system_prompt
    assert (config.oai_client, config.oai_model_name) == (None, "qwen2.5-7b-instruct")
    assert config.train_model_tokenizer_path == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"max_prompt_length": 0},
        {"max_prompt_length": 128 * 1024 + 1},
        {"max_summary_length": 0},
        {"max_summary_length": 8193},
        {"before_raw_message": -1},
        {"end_raw_message": 1},
        {"use_summary": "perhaps"},
    ],
)
def test_a_refused_change_changes_nothing(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        MemoryConfig(**changes)
    config = MemoryConfig(max_prompt_length=5000)
    before = config.model_dump()
    (name, value) = next(iter(changes.items()))
    if changes == {"max_summary_length": 8193}:
        value = 5001
    with pytest.raises(ValidationError):
        setattr(config, name, value)
    with pytest.raises(ValidationError):
        config.update({"simplify_thinking": True, name: value})
    assert config.model_dump() == before


def test_the_ends_of_the_ranges_are_in_them() -> None:
    assert MemoryConfig(max_prompt_length=128 * 1024).max_prompt_length == 131072
    assert MemoryConfig(max_prompt_length=10, max_summary_length=10).max_summary_length == 10


def test_the_order_of_keys_does_not_matter() -> None:
    config = MemoryConfig()
    config.update({"max_prompt_length": 512, "max_summary_length": 128})
    assert (config.max_prompt_length, config.max_summary_length) == (512, 128)
    config.update({"max-summary-length": 64})
    assert config.max_summary_length == 64


def test_an_unknown_key_is_an_error_at_first_and_a_warning_in_a_change() -> None:
    with pytest.raises(ValidationError, match="max_prompt_len"):
        MemoryConfig.model_validate({"max_prompt_len": 5})
    config = MemoryConfig()
    with pytest.warns(UserWarning, match="did you mean 'max_prompt_length'"):
        config.update({"max_prompt_len": 4000, "use_summary": True})
    assert config.use_summary
    assert config.max_prompt_length == 8192


def test_the_client_is_in_no_repr_and_no_dump() -> None:
    config = MemoryConfig(oai_client=object())
    assert "oai_client" not in repr(config)
    assert "oai_client" not in config.model_dump()
