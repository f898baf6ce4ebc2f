"""From our sampling parameters to vLLM's.

One value of a wrong type kills vLLM's engine process, and some values it changes without a word.
So every value is checked here and made the very type that vLLM declares, whatever the codec did.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import TYPE_CHECKING

from gradwire.server.engines.sampling import SamplingParams, StructuredKind, StructuredOutput
from gradwire.server.engines.vllm import schemas
from gradwire.server.errors import InvalidArgument

if TYPE_CHECKING:
    from vllm.sampling_params import SamplingParams as VllmParams
    from vllm.sampling_params import StructuredOutputsParams

MIN_TEMPERATURE = 0.01  # below it vLLM would silently sample with this one
MAX_SEED = 2**63 - 1
MAX_INT = 2**31 - 1
MAX_BIAS = 100.0  # vLLM's range of a logit bias


def to_vllm(params: SamplingParams, *, stream: bool, room: int, stream_interval: int = 1) -> VllmParams:
    """vLLM's parameters.

    Args:
        params: resolved parameters.
        stream: deltas as they come, or one delivery at the end.
        room: tokens that fit into the context after the prompt; `max_tokens` is cut to it.
        stream_interval: tokens per delta after the first.

    Raises:
        InvalidArgument: a wrong type, or a value that vLLM would change or die of. vLLM's own
            checks (ranges) raise VLLMValidationError here.
    """
    from vllm.sampling_params import RequestOutputKind
    from vllm.sampling_params import SamplingParams as VllmParams

    max_tokens = min(_integer("max_tokens", params.max_tokens), room)
    return VllmParams(
        n=_integer("n", params.n),
        temperature=_temperature(params.temperature),
        top_p=_number("top_p", params.top_p),
        top_k=_integer("top_k", params.top_k),
        min_p=_number("min_p", params.min_p),
        max_tokens=max_tokens,
        min_tokens=_min_tokens(params, max_tokens),
        stop=_texts("stop", params.stop),
        stop_token_ids=_integers("stop_token_ids", params.stop_token_ids),
        include_stop_str_in_output=_flag("include_stop_str_in_output", params.include_stop_str_in_output),
        ignore_eos=_flag("ignore_eos", params.ignore_eos),
        seed=_seed(params),
        presence_penalty=_number("presence_penalty", params.presence_penalty),
        frequency_penalty=_number("frequency_penalty", params.frequency_penalty),
        repetition_penalty=_number("repetition_penalty", params.repetition_penalty),
        logprobs=_count("log_probs", params.log_probs),
        prompt_logprobs=_count("prompt_log_probs", params.prompt_log_probs),
        bad_words=_texts("bad_words", params.bad_words),
        allowed_token_ids=_integers("allowed_token_ids", params.allowed_token_ids) or None,
        logit_bias=_logit_bias(params.logit_bias) or None,
        skip_special_tokens=_flag("skip_special_tokens", params.skip_special_tokens),
        structured_outputs=_structured(params.structured),
        output_kind=RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY,
        stream_interval=stream_interval if stream else None,
        flat_logprobs=True,  # lists of numbers instead of a dict of objects per token
        skip_clone=True,  # made for this request alone
    )


def _bad(field: str, description: str) -> InvalidArgument:
    return InvalidArgument.at(f"params.{field}", description)


def _integer(field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise _bad(field, f"must be an integer, not {type(value).__name__}")
    if not -MAX_INT <= int(value) <= MAX_INT:
        raise _bad(field, f"{value} is out of range")
    return int(value)


def _count(field: str, value: object) -> int | None:
    if value is None:
        return None
    count = _integer(field, value)
    if count < 0:  # vLLM would take -1 as the whole vocabulary
        raise _bad(field, f"must be 0 or more, not {count}")
    return count


def _number(field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise _bad(field, f"must be a number, not {type(value).__name__}")
    if not math.isfinite(value):
        raise _bad(field, f"must be finite, not {value}")
    return float(value)


def _flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _bad(field, f"must be true or false, not {type(value).__name__}")
    return value


def _texts(field: str, values: Iterable[object]) -> list[str]:
    texts = []
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise _bad(f"{field}[{index}]", f"must be a string, not {type(value).__name__}")
        texts.append(value)
    return texts


def _integers(field: str, values: Iterable[object]) -> list[int]:
    return [_integer(f"{field}[{index}]", value) for index, value in enumerate(values)]


def _temperature(value: object) -> float:
    temperature = _number("temperature", value)
    if 0 < temperature < MIN_TEMPERATURE:
        raise _bad("temperature", f"must be 0 (greedy) or at least {MIN_TEMPERATURE}, not {temperature}")
    return temperature


def _min_tokens(params: SamplingParams, max_tokens: int) -> int:
    """As asked for, when it fits `max_tokens` as asked for; cut like it to the context."""
    wanted = _integer("min_tokens", params.min_tokens)
    return min(wanted, max_tokens) if wanted <= params.max_tokens else wanted


def _seed(params: SamplingParams) -> int | None:
    """Completion i of n samples with seed + i, so the last one has to be in range, too."""
    value = params.seed
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise _bad("seed", f"must be an integer, not {type(value).__name__}")
    if not 0 <= int(value) <= MAX_SEED - params.n:
        raise _bad("seed", f"must be from 0 to {MAX_SEED - params.n}, not {value}")
    return int(value)


def _logit_bias(biases: dict[int, float]) -> dict[int, float]:
    checked = {}
    for token, bias in biases.items():
        number = _number(f"logit_bias[{token}]", bias)
        if abs(number) > MAX_BIAS:
            raise _bad(f"logit_bias[{token}]", f"must be from {-MAX_BIAS} to {MAX_BIAS}, not {number}")
        checked[_integer("logit_bias", token)] = number
    return checked


def _structured(output: StructuredOutput | None) -> StructuredOutputsParams | None:
    from vllm.sampling_params import StructuredOutputsParams

    if output is None:
        return None
    if output.kind is StructuredKind.JSON_OBJECT:
        return StructuredOutputsParams(json_object=True)
    if output.kind is StructuredKind.CHOICE:
        choices = _texts("structured.choices", output.choices)
        if not choices or not all(choices):
            raise _bad("structured.choices", "needs at least one choice, and no empty one")
        # xgrammar loses its way among many equal ones.
        return StructuredOutputsParams(choice=list(dict.fromkeys(choices)))
    (value,) = _texts("structured.value", [output.value])
    if not value:
        raise _bad("structured.value", f"is empty; give the {output.kind.value}")
    if output.kind is StructuredKind.JSON_SCHEMA:
        if problem := schemas.problem(value):
            raise _bad("structured.value", problem)
        return StructuredOutputsParams(json=value)
    if output.kind is StructuredKind.REGEX:
        return StructuredOutputsParams(regex=value)
    if problem := schemas.grammar_problem(value):
        raise _bad("structured.value", problem)
    return StructuredOutputsParams(grammar=value)
