"""Models of the Arena that show themselves in a few lines, however much they hold.

Knows: pydantic. Does not know: how what is long is cut (`types.shown`), nor the models.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from gradwire.client.types.shown import Bounded, brief

_WHOLE = 200  # characters of a field that is no text: a space of a few numbers, a short conversation


class BriefModel(Bounded, BaseModel):
    """As pydantic shows a model, but what is long in a field is cut, with an ellipsis and the count of what there is.

    Fields, equality and `model_dump` are pydantic's own.
    """

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            whole = not isinstance(value, str) and len(repr(value)) <= _WHOLE
            yield name, value if whole else _Written(brief(value))


class _Written:
    """A text that is its own repr."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text
