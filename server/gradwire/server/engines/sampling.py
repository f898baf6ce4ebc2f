"""Values that cross the border of a sampling engine. No gRPC, no torch, no vllm."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

TokenIds = npt.NDArray[np.int32]
LogProbs = npt.NDArray[np.float32]


class FinishReason(StrEnum):
    """Why a completion ended."""

    STOP = "stop"  # an end-of-sequence token, a stop token or a stop string
    LENGTH = "length"  # max_tokens, or the model's context is full
    ABORT = "abort"  # cancelled, or a weight update with the abort policy
    ERROR = "error"  # the engine failed in the middle


class StructuredKind(StrEnum):
    """What constrains the output."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    REGEX = "regex"
    CHOICE = "choice"
    GRAMMAR = "grammar"


@dataclass(frozen=True, slots=True)
class StructuredOutput:
    """Output constraint; `value` is the schema, pattern or grammar, `choices` only for CHOICE."""

    kind: StructuredKind
    value: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Resolved sampling parameters: every default has been applied and every type checked.

    The codec builds this and nothing else reaches the engine: one value of a wrong type is
    enough to kill vLLM's engine process.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0: all tokens
    min_p: float = 0.0
    max_tokens: int = 16
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    log_probs: int | None = None  # None: none; 0: of the sampled token; k: also the k most likely
    prompt_log_probs: int | None = None  # the same, of the prompt's tokens
    bad_words: tuple[str, ...] = ()
    allowed_token_ids: tuple[int, ...] = ()
    logit_bias: dict[int, float] = field(default_factory=dict)
    skip_special_tokens: bool = True
    structured: StructuredOutput | None = None


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """One prompt, `params.n` completions."""

    request_id: str  # unique among live requests; the caller of the engine makes it so
    prompt_token_ids: TokenIds
    params: SamplingParams
    stream: bool  # False: the engine may deliver once, at the end
    cache_salt: str | None = None  # isolates the prefix cache between tenants
    priority: int = 0
    adapter: str = ""  # of `SamplerEngine.update_adapter`; empty: the model itself


@dataclass(frozen=True, slots=True)
class TopLogProbs:
    """The k most likely tokens at each position, most likely first.

    `token_ids` int32 [T, k]; `log_probs` float32 [T, k]. Unused places hold -1 and -inf.
    """

    token_ids: npt.NDArray[np.int32]
    log_probs: npt.NDArray[np.float32]

    def part(self, start: int, end: int | None) -> TopLogProbs:
        """Positions [start, end)."""
        return TopLogProbs(self.token_ids[start:end], self.log_probs[start:end])


@dataclass(frozen=True, slots=True)
class WeightSpan:
    """Output tokens [start, end) of one completion were sampled by weights `version`."""

    version: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PromptInfo:
    """What is known of the prompt once the engine has read it.

    `log_probs` float32 [P]: log p of token i given those before it; entry 0 is NaN (nothing
    stands before it).
    """

    num_tokens: int
    num_cached_tokens: int
    log_probs: LogProbs | None = None
    top_log_probs: TopLogProbs | None = None


@dataclass(frozen=True, slots=True)
class CompletionDelta:
    """New tokens of completion `index`. The last delta of a completion has `finish_reason`."""

    index: int
    first_token_index: int  # index in the completion of token_ids[0]
    token_ids: TokenIds
    text: str
    log_probs: LogProbs | None = None
    top_log_probs: TopLogProbs | None = None
    weight_spans: tuple[WeightSpan, ...] = ()  # indexes are in the whole completion
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None  # the stop string or token id that ended it


@dataclass(frozen=True, slots=True)
class SampleEvent:
    """One delivery of the engine: `prompt` in the first event only, then deltas."""

    deltas: tuple[CompletionDelta, ...]
    prompt: PromptInfo | None = None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a sampling engine serves."""

    name: str  # as the operator named it
    path: str  # Hugging Face folder
    max_model_len: int
    vocab_size: int
    dtype: str  # "float32" | "bfloat16" | "float16"
    eos_token_ids: tuple[int, ...]
    has_chat_template: bool
    max_log_probs: int
    architecture: str = ""


@dataclass(frozen=True, slots=True)
class SamplerLoad:
    """What an engine has to do now, requests of one prompt and `n` completions counted as `n`."""

    running: int  # requests that it works on
    waiting: int  # requests that wait for a place
    kv_cache_usage: float  # part of the key-value cache in use, 0 to 1


@dataclass(slots=True)
class SampledTokens:
    """Tokens of an engine since its start."""

    prompt: int = 0  # of prompts that were read, one counted once however many completions it has
    cached: int = 0  # those of them that were found in the prefix cache
    sampled: int = 0


MAX_LORA_RANK = 512  # vLLM's largest slot


@dataclass(frozen=True, slots=True)
class SamplerConfig:
    """Everything that makes a sampling job. 0 or None: the engine decides."""

    model: str  # as the operator or the caller named it
    model_path: str = ""  # the Hugging Face folder it resolved to
    dtype: str = "auto"  # "auto": the model's own; "float32", "bfloat16", "float16"
    max_model_len: int = 0
    max_num_seqs: int = 0  # sequences sampled at once
    max_num_batched_tokens: int = 0  # tokens of one engine step
    kv_cache_bytes: int = 0  # on CPU; 1 GiB when 0
    gpu_memory_utilization: float = 0.0
    tensor_parallel_size: int = 1
    data_parallel_size: int = 1
    max_log_probs: int = 20
    enable_prefix_caching: bool = True
    enforce_eager: bool | None = None  # None: True on CPU (compiling takes a minute), False on CUDA
    seed: int = 0
    tool_call_parser: str = "hermes"  # how the model writes tool calls, by vLLM's name; "": it does not
    max_loras: int = 0  # adapters that can be held at once; 0: none
    max_lora_rank: int = 32  # highest rank of an adapter
