"""What sampling takes and returns. Plain frozen dataclasses; arrays are numpy's.

Knows: meaning, shapes and dtypes. Does not know: protobuf (`_convert` does).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from gradwire.client.types.shown import Brief

Int32Array = npt.NDArray[np.int32]
Float32Array = npt.NDArray[np.float32]

ChatMessage = Mapping[str, str]
"""One message of a conversation: {"role": "user", "content": "..."}."""
Prompt = str | Sequence[int] | npt.NDArray[np.integer[Any]] | Sequence[ChatMessage]
"""Text, token ids, or a conversation."""
Prompts = Prompt | Sequence[Prompt]
"""One prompt, or a list of them."""


class FinishReason(StrEnum):
    """Why a completion ended."""

    UNSPECIFIED = "unspecified"
    """The server gave none, or one that this client does not know."""
    STOP = "stop"
    """An end-of-sequence token, a stop token or a stop string."""
    LENGTH = "length"
    """max_tokens was reached, or the model's context is full."""
    ABORT = "abort"
    """Ended from outside: a pause or a weight update with the abort policy."""
    ERROR = "error"
    """The engine failed in the middle; the tokens so far are good."""


class InFlightPolicy(StrEnum):
    """What becomes of requests in the engine when it is paused or its weights change."""

    UNSPECIFIED = "unspecified"
    """The default of the call."""
    ABORT = "abort"
    """End them now with FinishReason.ABORT."""
    WAIT = "wait"
    """Let them finish first."""
    KEEP = "keep"
    """Hold them and go on later, with new weights where those have changed."""


class WakePart(StrEnum):
    """Parts of a sleeping engine."""

    UNSPECIFIED = "unspecified"
    """All of it."""
    WEIGHTS = "weights"
    """The weights: enough to sync new ones."""
    KV_CACHE = "kv_cache"
    """The KV cache; the weights must be back."""


@dataclass(frozen=True, slots=True, repr=False)
class StructuredOutput(Brief):
    """A constraint that the output meets at each token. Exactly one field is given."""

    json_schema: str | Mapping[str, Any] | None = None
    """A JSON Schema, as a mapping or as text."""
    regex: str | None = None
    """The whole text matches this regular expression."""
    choice: Sequence[str] | None = None
    """The text is one of these."""
    grammar: str | None = None
    """The text is of this EBNF grammar, as GBNF writes it."""
    json_object: bool | None = None
    """True: any JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SamplingParams(Brief):
    """How to sample. A field that is None takes the server's default, named here."""

    n: int | None = None
    """Completions for each prompt, 1 to 1024. Default 1."""
    temperature: float | None = None
    """Divides the logits; 0 takes the most likely token. Default 1."""
    top_p: float | None = None
    """Keep the smallest set of tokens whose probabilities reach this. Default 1 (all)."""
    top_k: int | None = None
    """Keep this many of the most likely tokens. Default 0 (all)."""
    min_p: float | None = None
    """Drop tokens less likely than this times the most likely one. Default 0."""
    max_tokens: int | None = None
    """Tokens to sample at most. Default: as many as the context still holds."""
    min_tokens: int | None = None
    """Tokens to sample at least. Default 0."""
    stop: Sequence[str] | None = None
    """The completion ends where one of these appears; a plain string is one of them. Default: none."""
    stop_token_ids: Sequence[int] | None = None
    """The completion ends with one of these tokens. Default: only the model's own."""
    include_stop_str_in_output: bool | None = None
    """Leave the stop string in the text. Default false."""
    ignore_eos: bool | None = None
    """Sample on after an end-of-sequence token. Default false."""
    seed: int | None = None
    """Makes sampling repeatable. Default: none."""
    presence_penalty: float | None = None
    """Subtracted from the logit of a token that the completion holds, -2 to 2. Default 0."""
    frequency_penalty: float | None = None
    """The same, for each time that it holds it, -2 to 2. Default 0."""
    repetition_penalty: float | None = None
    """Divides the logit of a token that prompt or completion hold, above 0. Default 1."""
    log_probs: int | None = None
    """Return log-probs of the sampled tokens, and of this many most likely ones. Default: none."""
    prompt_log_probs: int | None = None
    """The same for the prompt's tokens. Default: none."""
    bad_words: Sequence[str] | None = None
    """Words that may not be sampled. Default: none."""
    allowed_token_ids: Sequence[int] | None = None
    """Only these tokens may be sampled. Default: all."""
    logit_bias: Mapping[int, float] | None = None
    """Added to the logits, by token id; each -100 to 100. Default: nothing."""
    skip_special_tokens: bool | None = None
    """Leave special tokens out of the text. Default true."""
    structured_output: StructuredOutput | Mapping[str, Any] | None = None
    """Constrains the output. Default: none."""


class SamplingKeywords(TypedDict, total=False):
    """The fields of SamplingParams, as keyword arguments of a call."""

    n: int | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    min_p: float | None
    max_tokens: int | None
    min_tokens: int | None
    stop: str | Sequence[str] | None
    stop_token_ids: Sequence[int] | None
    include_stop_str_in_output: bool | None
    ignore_eos: bool | None
    seed: int | None
    presence_penalty: float | None
    frequency_penalty: float | None
    repetition_penalty: float | None
    log_probs: int | None
    prompt_log_probs: int | None
    bad_words: Sequence[str] | None
    allowed_token_ids: Sequence[int] | None
    logit_bias: Mapping[int, float] | None
    skip_special_tokens: bool | None
    structured_output: StructuredOutput | Mapping[str, Any] | None


SamplingParamsLike = SamplingParams | Mapping[str, Any]


@dataclass(frozen=True, slots=True, repr=False)
class WeightSpan(Brief):
    """Tokens [start, end) of a completion were sampled by the weights of one version."""

    version: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TopLogProbs(Brief):
    """The k most likely tokens at each of T places, most likely first."""

    token_ids: Int32Array
    """int32 [T, k]; -1 where there is none."""
    log_probs: Float32Array
    """float32 [T, k]."""


@dataclass(frozen=True, slots=True, repr=False)
class Usage(Brief):
    """Token counts."""

    prompt_tokens: int
    """Tokens of the prompts, each prompt once."""
    completion_tokens: int
    """Tokens sampled."""
    cached_tokens: int
    """Prompt tokens that came from the prefix cache."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Completion(Brief):
    """One completion of T tokens."""

    index: int
    """Which of the n completions of its prompt."""
    text: str
    """Its text, stop string excluded unless asked for."""
    token_ids: Int32Array
    """int32 [T], exactly as sampled, the stop token included."""
    log_probs: Float32Array | None
    """float32 [T], natural logarithms, before temperature and filters. None unless asked for."""
    top_log_probs: TopLogProbs | None
    """None unless asked for."""
    weight_spans: tuple[WeightSpan, ...]
    """Which weights sampled which tokens; covers all of them."""
    finish_reason: FinishReason
    """Why it ended."""
    stop_reason: str | int | None
    """The stop string or the stop token id that ended it; None for an end-of-sequence token."""

    @property
    def weight_version(self) -> int | None:
        """Newest version that sampled any of its tokens; None without tokens."""
        return max((span.version for span in self.weight_spans), default=None)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PromptInfo(Brief):
    """What is known of a prompt of P tokens."""

    token_ids: Int32Array
    """int32 [P], as the model read them."""
    num_cached_tokens: int
    """Tokens that came from the prefix cache."""
    log_probs: Float32Array | None
    """float32 [P]; entry 0 is NaN. None unless asked for."""
    top_log_probs: TopLogProbs | None
    """None unless asked for."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PromptResult(Brief):
    """A prompt and its n completions, by index."""

    prompt: PromptInfo
    completions: tuple[Completion, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GenerateResult(Brief):
    """Completions, in the order of the prompts. Iterating gives one PromptResult a prompt."""

    results: tuple[PromptResult, ...]
    params: SamplingParams
    """The parameters with their defaults applied."""
    usage: Usage

    def __iter__(self) -> Iterator[PromptResult]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: int) -> PromptResult:
        return self.results[index]

    @property
    def completions(self) -> tuple[Completion, ...]:
        """All completions, prompt after prompt."""
        return tuple(completion for result in self.results for completion in result.completions)

    @property
    def text(self) -> str:
        """Text of the only completion. ValueError when there are several: read `completions`."""
        completions = self.completions
        if len(completions) != 1:
            raise ValueError(f"there are {len(completions)} completions; read each one's text from .completions")
        return completions[0].text


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StreamDelta(Brief):
    """New tokens of one completion."""

    index: int
    """Which of the n completions."""
    first_token_index: int
    """Index in the completion of the first token here."""
    text: str
    """New text; may be empty while a character or a possible stop string is unfinished."""
    token_ids: Int32Array
    """int32 [T]."""
    log_probs: Float32Array | None
    """float32 [T]. None unless asked for."""
    top_log_probs: TopLogProbs | None
    """None unless asked for."""
    weight_spans: tuple[WeightSpan, ...]
    """Which weights sampled these tokens; indexes are in the whole completion."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Score(Brief):
    """Log-probs of a prompt of P tokens and a completion of C tokens."""

    prompt: PromptInfo
    completion_token_ids: Int32Array
    """int32 [C]."""
    completion_log_probs: Float32Array
    """float32 [C], given all tokens before."""
    completion_top_log_probs: TopLogProbs | None
    """None unless asked for."""
    weight_version: int
    """Weights that scored."""


@dataclass(frozen=True, slots=True, repr=False)
class MemoryChange(Brief):
    """Memory of an engine's processes around an operation, in bytes: resident on CPU, the device's on a GPU."""

    before_bytes: int
    after_bytes: int
    changed: bool
    """False when there was nothing to do."""

    @property
    def freed_bytes(self) -> int:
        """Bytes that the operation gave back; below 0 when it took some."""
        return self.before_bytes - self.after_bytes
