"""`tiny`: a random Llama of about one million parameters, the same bytes on every machine.

Tests and benchmarks want a model that loads in a second, needs no download and still behaves like a
language model: real tokenizer, real chat template, a spread of likely next tokens. Knows: shapes, random
weights and a byte-level tokenizer. Does not know: torch or transformers; it writes their files by itself,
so that no version of theirs can change the result.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

HIDDEN = 192
HEADS = 6
KV_HEADS = 2
HEAD_SIZE = HIDDEN // HEADS  # 32: the smallest that vLLM's CPU attention supports
LAYERS = 2
INTERMEDIATE = 640
MAX_POSITIONS = 2048

# A byte's token id is its value; the special tokens follow.
PAD, BOS, IM_START, IM_END = 256, 257, 258, 259
SPECIAL_TOKENS = {PAD: "<|pad|>", BOS: "<|bos|>", IM_START: "<|im_start|>", IM_END: "<|im_end|>"}
VOCAB = 260

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# Scales of the random weights, in standard deviations. The residual stream must be ruled by the layers
# and not by the token's own embedding: with tied embeddings the model would otherwise repeat its input for ever.
EMBEDDING_STD = 0.2
MATRIX_GAIN = 1.5
# Everything but printable ASCII has short embeddings, so it is rarely sampled: text comes out readable, as whole
# characters, and a generation seldom ends before its length limit.
UNLIKELY_FACTOR = 0.25


def build(folder: Path, *, tied: bool) -> None:
    """Writes config, weights (fp32) and tokenizer into `folder`."""
    tensors = dict(_tensors(tied=tied))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    _write_json(folder / "config.json", _config(tied=tied))
    _write_json(folder / "generation_config.json", _generation_config())
    _tokenizer().save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config())


def _tensors(*, tied: bool) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Each parameter by its Hugging Face name, drawn in a fixed order from one stream."""
    source = _UniformSource(seed=20)
    yield "model.embed_tokens.weight", source.matrix(VOCAB, HIDDEN, EMBEDDING_STD) * _row_scales()
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name, rows, columns in (
            ("self_attn.q_proj", HIDDEN, HIDDEN),
            ("self_attn.k_proj", KV_HEADS * HEAD_SIZE, HIDDEN),
            ("self_attn.v_proj", KV_HEADS * HEAD_SIZE, HIDDEN),
            ("self_attn.o_proj", HIDDEN, HIDDEN),
            ("mlp.gate_proj", INTERMEDIATE, HIDDEN),
            ("mlp.up_proj", INTERMEDIATE, HIDDEN),
            ("mlp.down_proj", HIDDEN, INTERMEDIATE),
        ):
            yield f"{prefix}{name}.weight", source.matrix(rows, columns, MATRIX_GAIN * columns**-0.5)
        yield f"{prefix}input_layernorm.weight", np.ones(HIDDEN, np.float32)
        yield f"{prefix}post_attention_layernorm.weight", np.ones(HIDDEN, np.float32)
    yield "model.norm.weight", np.ones(HIDDEN, np.float32)
    if not tied:
        yield "lm_head.weight", source.matrix(VOCAB, HIDDEN, EMBEDDING_STD) * _row_scales()


def _row_scales() -> NDArray[np.float32]:
    """Shape (VOCAB, 1): 1 for printable ASCII, UNLIKELY_FACTOR for the other bytes and the special tokens."""
    scales = np.full((VOCAB, 1), UNLIKELY_FACTOR, np.float32)
    scales[0x20:0x7F] = 1
    return scales


class _UniformSource:
    """Uniform random matrices whose bytes depend on the seed alone.

    Only the counter-based bit stream of Philox is taken from numpy: it is fixed by its definition, while the
    samplers built on it may change between versions, and normal ones use libm, which differs between machines.
    """

    def __init__(self, seed: int) -> None:
        self._bits = np.random.Philox(key=seed)

    def matrix(self, rows: int, columns: int, std: float) -> NDArray[np.float32]:
        """Shape (rows, columns), fp32, uniform around 0 with the given standard deviation."""
        top_24_bits = (self._bits.random_raw(rows * columns) >> np.uint64(40)).astype(np.int32)
        unit = (top_24_bits - 2**23).astype(np.float32) / np.float32(2**23)  # exact in fp32, in [-1, 1)
        scaled: NDArray[np.float32] = unit * np.float32(std * 3**0.5)
        return scaled.reshape(rows, columns)


def _tokenizer() -> Tokenizer:
    """One token a byte: BPE without merges over the byte-level alphabet, so every string round-trips."""
    vocab = {_byte_level_character(byte): byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL_TOKENS.values()])
    return tokenizer


def _byte_level_character(byte: int) -> str:
    """GPT-2's printable stand-in for a byte: itself where it is printable Latin-1, else one from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    if byte in printable:
        return chr(byte)
    return chr(0x100 + [b for b in range(256) if b not in printable].index(byte))


def _config(*, tied: bool) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": BOS,
        "dtype": "float32",
        "eos_token_id": IM_END,
        "head_dim": HEAD_SIZE,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initializer_range": 0.02,
        "intermediate_size": INTERMEDIATE,
        "max_position_embeddings": MAX_POSITIONS,
        "mlp_bias": False,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "pad_token_id": PAD,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
        "rope_theta": 10000.0,  # where transformers before 5 looks for it
        "tie_word_embeddings": tied,
        "use_cache": True,
        "vocab_size": VOCAB,
    }


def _generation_config() -> dict[str, Any]:
    return {"bos_token_id": BOS, "eos_token_id": IM_END, "pad_token_id": PAD}


def _tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL_TOKENS[BOS],
        "eos_token": SPECIAL_TOKENS[IM_END],
        "pad_token": SPECIAL_TOKENS[PAD],
        "additional_special_tokens": [SPECIAL_TOKENS[IM_START]],
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,  # it would eat spaces before punctuation: no round trip
        "model_max_length": MAX_POSITIONS,
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
