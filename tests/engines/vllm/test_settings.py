"""The engine's arguments and environment."""

from __future__ import annotations

import os

import pytest
from vllm.v1.engine.output_processor import RequestState

from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.engines.vllm import settings
from gradwire.server.engines.vllm.coalesce import WINDOW_S, Coalescer, set_interval
from gradwire.server.errors import InvalidArgument
from gradwire.server.models.resolve import resolve_model
from tests.engines.vllm.support import config


def test_arguments_on_the_cpu() -> None:
    made = settings.engine_args(config(max_log_probs=7), cpu=True)
    assert made.load_format == "safetensors" and made.enforce_eager
    assert (made.dtype, made.max_logprobs, made.kv_cache_memory_bytes) == ("float32", 7, 128 << 20)
    assert made.weight_transfer_config is not None and made.weight_transfer_config.backend == "gradwire_shm"
    with pytest.raises(InvalidArgument, match="enforce_eager"):
        settings.engine_args(config(enforce_eager=False), cpu=True)


def test_arguments_on_cuda() -> None:
    made = settings.engine_args(config(kv_cache_bytes=0, max_model_len=0, gpu_memory_utilization=0.5), cpu=False)
    assert made.max_model_len == -1  # vLLM's word for: what fits
    assert made.enable_sleep_mode and not made.enforce_eager
    assert made.gpu_memory_utilization == 0.5 and made.kv_cache_memory_bytes is None
    assert "TORCHDYNAMO_DISABLE" not in settings.engine_environment(config(), cpu=False)


def test_dtype() -> None:
    folder = str(resolve_model("tiny"))
    assert settings.engine_args(SamplerConfig("tiny", folder), cpu=True).dtype == "float32"
    assert settings.engine_args(SamplerConfig("tiny", folder, dtype="bfloat16"), cpu=True).dtype == "bfloat16"


def test_vllms_c_plus_plus_is_as_quiet_as_vllm_unless_the_user_says_other(monkeypatch: pytest.MonkeyPatch) -> None:
    for level, own, chosen in (("ERROR", None, "ERROR"), ("ERROR", "INFO", "INFO"), ("DEBUG", None, None)):
        monkeypatch.setenv("VLLM_LOGGING_LEVEL", level)
        monkeypatch.delenv("TORCH_CPP_LOG_LEVEL", raising=False)
        if own:
            monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", own)
        assert settings.engine_environment(config(), cpu=True).get("TORCH_CPP_LOG_LEVEL") == chosen
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "ERROR")
    monkeypatch.delenv("TORCH_CPP_LOG_LEVEL", raising=False)
    for chosen_config, cpu in ((config(), False), (config(tensor_parallel_size=2), True)):  # NCCL's, gloo's: real ones
        assert "TORCH_CPP_LOG_LEVEL" not in settings.engine_environment(chosen_config, cpu=cpu)


def test_environment_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "3")
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    before = dict(os.environ)
    with settings.environment(settings.engine_environment(config(), cpu=True)):
        assert "VLLM_CPU_KVCACHE_SPACE" not in os.environ and os.environ["TORCHDYNAMO_DISABLE"] == "1"
        os.environ["LD_PRELOAD"] = "something of vLLM's"
    assert dict(os.environ) == before


class Clock:
    """Time by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("streams", "rate", "interval"),
    [(1, 300, 1), (1, 700, 3), (8, 300, 1), (8, 3900, 13), (64, 11500, 35), (64, 800, 2), (4000, 50000, 2)],
)
def test_interval_follows_the_load(streams: int, rate: int, interval: int) -> None:
    """Bounded deliveries per second; a token is never held back longer than 0.2 s."""
    clock = Clock()
    pace = Coalescer(clock, cores=2)
    for _ in range(streams):
        pace.open()
    for _ in range(10):
        clock.now += WINDOW_S / 9
        pace.count(round(rate * WINDOW_S / 9))
    assert pace.interval == interval


def test_a_burst_is_noticed_before_a_window_is_over() -> None:
    clock = Clock()
    pace = Coalescer(clock, cores=2)
    for _ in range(64):
        pace.open()
    for _ in range(3):
        clock.now += WINDOW_S / 10
        pace.count(64)
    assert pace.interval > 1


@pytest.mark.parametrize(("rate", "one", "many"), [(64 * 200, 1, 40), (64 * 30, 1, 6), (64 * 5, 1, 1)])
def test_interval_starts_from_the_last_measurement(rate: int, one: int, many: int) -> None:
    """A burst of a fast model does not begin with a delivery a token, nor a single stream with large ones."""
    clock = Clock()
    pace = Coalescer(clock, cores=2)
    for _ in range(64):
        pace.open()
    clock.now += WINDOW_S
    for _ in range(63):
        pace.close()  # a window that ends with few streams was still of many
    pace.count(round(rate * WINDOW_S))
    pace.close()
    clock.now += 60
    pace.open()
    assert pace.interval == one
    for _ in range(63):
        pace.open()
    assert pace.interval == many


def test_a_running_stream_never_goes_back_to_one() -> None:
    class Detokenizer:
        def num_output_tokens(self) -> int:
            return 9

    state = RequestState.__new__(RequestState)
    state.stream_interval, state.sent_tokens_offset = 1, 0
    state.detokenizer = Detokenizer()
    set_interval([state], 4)
    assert (state.stream_interval, state.sent_tokens_offset) == (4, 9)
    set_interval([state], 1)
    assert (state.stream_interval, state.sent_tokens_offset) == (2, 9)
