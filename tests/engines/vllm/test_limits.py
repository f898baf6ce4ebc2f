"""What a model's context and cache are held to, before an engine is started."""

from __future__ import annotations

import pytest

from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.engines.vllm import settings
from gradwire.server.engines.vllm.limits import engine_config
from gradwire.server.errors import InvalidArgument
from tests.engines.vllm.support import config

BLOCK = 2 * 32 * 2 * 32 * 4 * 2  # tiny's keys and values: tokens, heads, head size, float32, layers


def made(asked: SamplerConfig) -> int:
    """The context that vLLM is configured for."""
    with settings.environment(settings.engine_environment(asked, cpu=True)):
        arguments = settings.engine_args(asked, cpu=True)
        done = engine_config(arguments, asked, arguments.kv_cache_memory_bytes or 0)
    return int(done.model_config.max_model_len)


def test_a_context_beyond_the_models_names_the_longest() -> None:
    assert made(config(max_model_len=2048)) == 2048
    with pytest.raises(InvalidArgument) as caught:
        made(config(max_model_len=2049))
    assert str(caught.value) == (
        "config.max_model_len: is 2049; this model's context is 2048 tokens: give at most 2048, or leave it out"
    )


@pytest.mark.parametrize(("length", "least"), [(512, 17 * BLOCK), (500, 17 * BLOCK), (0, 2 * BLOCK)])
def test_a_cache_without_room_for_a_request_names_what_one_takes(length: int, least: int) -> None:
    """vLLM itself starts with `least`, and not with a byte less: one block of it holds nothing."""
    made(config(kv_cache_bytes=least, max_model_len=length))
    with pytest.raises(InvalidArgument, match=f"is {least - 1} bytes, too few: .* takes {least}") as caught:
        made(config(kv_cache_bytes=least - 1, max_model_len=length))
    assert [violation.field for violation in caught.value.violations] == ["config.kv_cache_bytes"]


def test_half_the_bytes_hold_as_many_tokens_of_half_the_size() -> None:
    made(config(kv_cache_bytes=17 * BLOCK // 2, dtype="bfloat16"))
