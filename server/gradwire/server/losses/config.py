"""What each loss can be told: frozen dataclasses, filled strictly from a request's mapping.

An unknown key is an error that names the nearest known key: a misspelt option that is silently
ignored trains the wrong objective for a week. Knows no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from gradwire.server.errors import FieldViolation, InvalidArgument
from gradwire.server.losses.contract import problems_of
from gradwire.server.losses.idle import COUNTS, Idle, idle_options
from gradwire.server.losses.names import AGGREGATION_MODES, column_name, did_you_mean

PROMPT_GROUP_IDS = "prompt_group_ids"
"""Named like a column, but one integer for each row."""


@dataclass(slots=True)
class ColumnRules:
    """Columns of a batch that a configuration needs or cannot have, each with the reason in words.

    They are named as LossInputs or as a request names them; a name that is neither is a ValueError.
    """

    needed: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def need(self, option: str, *columns: str) -> None:
        """The option needs these columns."""
        for column in columns:
            self.needed.setdefault(column_name(column), f"{option} needs this column")

    def refuse(self, column: str, why: str) -> None:
        """The column must be absent."""
        self.refused[column_name(column)] = why


@dataclass(frozen=True, slots=True)
class LossConfig:
    """Options that every loss has.

    `batch_num_tokens` and `global_batch_size` replace the two denominators that are otherwise counted in
    the batch of the call (sum of the mask; rows, or prompts, that have any token). Gradients of several calls
    add up, so a caller who splits one large batch over k calls gives each call the large batch's counts, and
    the sum is then exactly the large batch's gradient. Both may be given: the mode takes its own. For prompt-mean a
    prompt's rows stay in one call.
    """

    temperature: float = 1.0  # log-probs are those of softmax(logits / temperature); > 0
    loss_agg_mode: str = "token-mean"
    batch_num_tokens: int | None = None  # denominator of token-mean; None: sum of this call's mask
    global_batch_size: int | None = None  # denominator of seq-mean-* (rows) and prompt-mean (prompts); None: counted

    def problems(self) -> list[tuple[str, str]]:
        """(key, what would be right) of each value out of range."""
        found = []
        if not self.temperature > 0:
            found.append(("temperature", f"must be > 0, is {self.temperature}"))
        if self.loss_agg_mode not in AGGREGATION_MODES:
            found.append(("loss_agg_mode", one_of(self.loss_agg_mode, AGGREGATION_MODES)))
        for key in ("batch_num_tokens", "global_batch_size"):
            value = getattr(self, key)
            if value is not None and value < 1:
                found.append((key, f"must be at least 1, is {value}"))
        return found

    def idle(self) -> tuple[Idle, ...]:
        """When which options have no effect: set to more than their neutral value, they are then refused."""
        return COUNTS

    def columns(self) -> ColumnRules:
        """Columns that these options need beside those that the loss always needs."""
        rules = ColumnRules()
        if self.loss_agg_mode == "prompt-mean":
            rules.need("loss_agg_mode 'prompt-mean'", PROMPT_GROUP_IDS)
        return rules


AnyConfig = TypeVar("AnyConfig", bound=LossConfig)


def parse_config(kind: type[AnyConfig], values: Mapping[str, Any], *, path: str) -> AnyConfig:
    """A configuration from a mapping of JSON-like values.

    Raises InvalidArgument with one violation for each key that is unknown, of a wrong type, out of range or idle.
    """
    hints = get_type_hints(kind)
    types = {f.name: hints[f.name] for f in fields(kind)}
    bad: list[FieldViolation] = []
    given: dict[str, Any] = {}
    for key, value in values.items():
        where = f"{path}.{key}"
        if key not in types:
            known = ", ".join(sorted(types))
            bad.append(FieldViolation(where, f"unknown key.{did_you_mean(key, types)} Known keys: {known}"))
            continue
        try:
            given[key] = _coerce(value, types[key])
        except ValueError as error:
            bad.append(FieldViolation(where, str(error)))
    if bad:
        raise InvalidArgument(bad, reason="LOSS_CONFIG_INVALID")
    config = kind(**given)
    if problems := problems_of(config, path=path) or idle_options(config, config.idle()):
        violations = [FieldViolation(f"{path}.{key}", text) for key, text in problems]
        raise InvalidArgument(violations, reason="LOSS_CONFIG_INVALID")
    return config


def one_of(value: str, known: tuple[str, ...]) -> str:
    """The sentence for a word that is none of the known ones."""
    return f"{value!r} is none of {', '.join(known)}.{did_you_mean(value, known)}"


def _coerce(value: Any, hint: Any) -> Any:
    """The value as the type of its field: bool, str, int, float or another class, each possibly `| None`."""
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]
    (kind,) = kinds  # a configuration's field has one type
    if value is None:
        if NoneType in get_args(hint):
            return None
        raise ValueError(f"may not be null; give a {kind.__name__}")
    if kind in (int, float) and isinstance(value, (int, float)) and not isinstance(value, bool):
        return _number(value, whole=kind is int)
    if kind not in (int, float) and isinstance(value, kind):
        return value
    raise ValueError(f"must be a {kind.__name__}, is the {type(value).__name__} {value!r}")


def _number(value: int | float, *, whole: bool) -> int | float:
    if not math.isfinite(value):
        raise ValueError(f"must be finite, is {value}")
    if not whole:
        return float(value)
    # Numbers come as doubles from a protobuf Struct, so 4096.0 is the integer 4096.
    if value != int(value):
        raise ValueError(f"must be a whole number, is {value}")
    return int(value)
