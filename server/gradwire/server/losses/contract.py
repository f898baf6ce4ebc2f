"""What an installed loss must be, so that a slip in one is told in words and never as a fault of the server.

Its names, options and columns are checked when it is loaded; what its configuration says, at each request. What its
function returns: compute.py. No torch.
"""

from __future__ import annotations

from dataclasses import fields
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from gradwire.server.errors import InvalidArgument

if TYPE_CHECKING:
    from gradwire.server.losses.config import ColumnRules, LossConfig
    from gradwire.server.losses.registry import Loss

FAILED = "LOSS_FAILED"


class LossPluginError(ValueError):
    """What is installed as a loss is none; the text names its entry point and what would be right."""


def check_installed(loss: Loss) -> None:
    """Raises ValueError where a loss can work with no request at all."""
    from gradwire.server.losses.config import LossConfig

    if not isinstance(loss.name, str) or not loss.name:
        raise ValueError(f"its name is {loss.name!r}; it is a word")
    if not callable(loss.load):
        raise ValueError(f"its load is a {type(loss.load).__name__}; it is a function that returns the loss's function")
    kind: Any = loss.config_type
    if not (isinstance(kind, type) and issubclass(kind, LossConfig) and "__dataclass_fields__" in vars(kind)):
        raise ValueError(f"its config_type is {kind!r}; it is a frozen dataclass that inherits LossConfig")
    try:
        hints = get_type_hints(kind)
        default = kind()
    except Exception as error:
        raise ValueError(f"{kind.__name__}() failed, and every option needs a default: {_said(error)}") from error
    for field in fields(kind):
        if not _is_option(hints[field.name]):
            raise ValueError(
                f"{kind.__name__}.{field.name} is of type {hints[field.name]}; an option is a bool, an int, a float or "
                "a str, or one of these or None"
            )
    try:
        problems_of(default, path="config")
        rules_of(default)
    except InvalidArgument as error:
        raise ValueError("; ".join(violation.description for violation in error.violations)) from error


def problems_of(config: LossConfig, *, path: str) -> list[tuple[str, str]]:
    """`config.problems()`. Raises InvalidArgument (LOSS_FAILED) where that fails or returns anything else."""
    name = f"{type(config).__name__}.problems()"
    try:
        found: Any = config.problems()
    except Exception as error:
        raise InvalidArgument.at(path, f"{name} failed: {_said(error)}", reason=FAILED) from error
    wrong = None if isinstance(found, list | tuple) else found
    if isinstance(found, list | tuple):
        wrong = next((entry for entry in found if not _is_pair(entry)), None)
        if wrong is None:
            return list(found)
    raise InvalidArgument.at(
        path, f"{name} returned {shortened(wrong)}; it returns a list of (key, text) pairs", reason=FAILED
    )


def rules_of(config: LossConfig) -> ColumnRules:
    """`config.columns()`. Raises InvalidArgument (LOSS_FAILED) where that fails or returns anything else."""
    from gradwire.server.losses.config import ColumnRules

    name = f"{type(config).__name__}.columns()"
    try:
        found: Any = config.columns()
    except Exception as error:
        raise InvalidArgument.at("loss.config", f"{name} failed: {_said(error)}", reason=FAILED) from error
    if not isinstance(found, ColumnRules):
        text = f"{name} returned {shortened(found)}; it returns the ColumnRules of the class above, with its own"
        raise InvalidArgument.at("loss.config", text, reason=FAILED)
    return found


def shortened(value: object) -> str:
    """A value as Python writes it, on one line and not too long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _is_pair(entry: object) -> bool:
    return isinstance(entry, tuple | list) and len(entry) == 2 and all(isinstance(part, str) for part in entry)


def _is_option(hint: Any) -> bool:
    """A class, or one or None."""
    if get_origin(hint) in (Union, UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not NoneType]
        return len(kinds) == 1 and isinstance(kinds[0], type)
    return isinstance(hint, type) and get_origin(hint) is None
