"""Whether a model's context and its key-value cache are what was asked for, before an engine is started.

vLLM finds the same out, the first in words about its own options, the second inside a started engine, which dies of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.errors import InvalidArgument

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.engine.arg_utils import AsyncEngineArgs

RESERVED_BLOCKS = 1  # vLLM's null block, which holds no token


def engine_config(arguments: AsyncEngineArgs, config: SamplerConfig, kv_cache_bytes: int) -> VllmConfig:
    """vLLM's configuration. Raises InvalidArgument at `config.max_model_len` or `config.kv_cache_bytes`.

    `kv_cache_bytes` 0: vLLM measures what there is.
    """
    from vllm.usage.usage_lib import UsageContext

    try:
        made = arguments.create_engine_config(UsageContext.ENGINE_CONTEXT)
    except ValueError:
        if config.max_model_len:
            _refuse_beyond_context(arguments, config.max_model_len)
        raise
    if kv_cache_bytes:
        _check_room(made, config, kv_cache_bytes)
    return made


def _refuse_beyond_context(arguments: AsyncEngineArgs, wanted: int) -> None:
    """Raises InvalidArgument when a longer context than the model's own is what vLLM refused."""
    arguments.max_model_len = -1  # as long as the model's own
    own = arguments.create_engine_config().model_config.max_model_len
    if wanted > own:
        raise InvalidArgument.at(
            "config.max_model_len",
            f"is {wanted}; this model's context is {own} tokens: give at most {own}, or leave it out",
        )


def _check_room(made: VllmConfig, config: SamplerConfig, kv_cache_bytes: int) -> None:
    """Raises InvalidArgument when the cache has no room for one request: of `max_model_len`, or of one block."""
    block = block_bytes(made)
    if block == 0:
        return  # of another kind: the engine itself knows what it takes
    tokens, own = int(made.cache_config.block_size), int(made.model_config.max_model_len)

    def needed(length: int) -> int:
        return (-(-length // tokens) + RESERVED_BLOCKS) * block

    if kv_cache_bytes >= needed(config.max_model_len or tokens):
        return
    if config.max_model_len:
        advice = (
            f"one request of max_model_len {own} takes {needed(own)}: give that at least, or a smaller max_model_len"
        )
    else:
        advice = f"a request of {tokens} tokens takes {needed(tokens)}, one of the model's whole context {needed(own)}"
    raise InvalidArgument.at(
        "config.kv_cache_bytes", f"is {kv_cache_bytes} bytes, too few: {advice}", reason="NOT_ENOUGH_MEMORY"
    )


def block_bytes(made: VllmConfig) -> int:
    """Bytes that a block of tokens takes of a worker's cache: keys and values of each layer and head.

    0 where not every layer keeps all of both: of models with sliding windows, state spaces or compressed keys.
    """
    import torch

    model, cache = made.model_config, made.cache_config
    kinds = set(getattr(model.hf_text_config, "layer_types", None) or ["full_attention"])
    windowed = model.get_sliding_window() is not None or kinds != {"full_attention"}
    if windowed or model.is_hybrid or model.is_attention_free or model.use_mla or cache.cache_dtype != "auto":
        return 0
    item = torch.empty(0, dtype=model.dtype).element_size()
    heads, layers = model.get_num_kv_heads(made.parallel_config), model.get_num_layers(made.parallel_config)
    return 2 * int(cache.block_size or 0) * int(heads) * int(model.get_head_size()) * item * int(layers)
