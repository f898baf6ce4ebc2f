"""How dataclasses of many optional fields show themselves: only what is set."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


class ShowsOnlySet:
    """`SamplingParams(max_tokens=4)` instead of a line of Nones."""

    __slots__ = ()

    def __repr__(self) -> str:
        own: Any = self
        values = ((field.name, getattr(self, field.name)) for field in fields(own))
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in values if value is not None)})"
