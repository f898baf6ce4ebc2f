"""What is wrong with settings, in words: where each stands, its key, its value, and what is right.

Knows pydantic's errors. Does not know what the settings mean.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

ENV_PREFIX = "GRADWIRE_"
_SECRET = ("database", "tokens")  # their values are never shown
_LONGEST = 60
Key = Sequence[int | str]


class SettingsError(ValueError):
    """Settings that can never work; the text names each of them."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where settings came from: of two, the one that won is the one at fault."""

    file: Path | None = None
    flags: Mapping[str, Any] = field(default_factory=dict)

    def of(self, key: Key) -> str:
        """Where a setting stands, with ": " behind it; empty when nobody knows."""
        if not key or key[0] in self.flags:  # a flag is called as its setting is
            return ""
        variables = {name.upper(): name for name in os.environ}
        for end in range(len(key), 0, -1):
            name = ENV_PREFIX + "__".join(map(str, key[:end])).upper()
            if name in variables:
                return f"environment variable {variables[name]}: "
        return f"{self.file}: " if self.file is not None and key[0] in tomllib.loads(self.file.read_text()) else ""


def explained(error: ValidationError, root: type[BaseModel], sources: Sources) -> SettingsError:
    """A line for each setting, with the nearest name for an unknown one."""
    lines = []
    for problem in error.errors(include_url=False):
        key = problem["loc"]
        if problem["type"] == "extra_forbidden":
            text = no_setting(str(key[-1]), _model_at(key[:-1], root).model_fields)
        else:
            text = _complaint(problem["msg"], key, problem["input"])
        where = ".".join(map(str, key))
        lines.append(sources.of(key) + (f"{where}: {text}" if where else text))
    return SettingsError("\n".join(lines))


def no_setting(name: str, known: Iterable[str], prefix: str = "") -> str:
    """That there is no such setting, and which was perhaps meant."""
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {prefix}{close[0]}?" if close else f"there are {', '.join(prefix + k for k in sorted(known))}"
    return f"is no setting; {hint}"


def _complaint(message: str, key: Key, value: object) -> str:
    """pydantic's message, with the value where it may be shown."""
    if message.startswith("Value error, "):
        return message.removeprefix("Value error, ")  # our own, which says what it is about
    plain = isinstance(value, str | int | float) and len(repr(value)) <= _LONGEST
    if not plain or key[0] in _SECRET or not message.startswith("Input "):
        return message
    return f"is {value!r}; it {message.removeprefix('Input ')}"


def _model_at(path: Key, root: type[BaseModel]) -> type[BaseModel]:
    """The part of the settings that stands at a path."""
    model = root
    for name in path:
        if name in model.model_fields:  # the others are places of a list, or a table's own names
            model = _model_in(model.model_fields[str(name)].annotation) or model
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model in `TlsSettings | None` or `tuple[TokenSettings, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
