"""Reading a peer's settings key by key: each is taken, noted as without effect, or refused.

Knows: that nothing may be dropped in silence. Does not know: any key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from gradwire.client._convert.nearest import unknown_name

_ABSENT = (None, "auto")  # Hugging Face's integration fills "auto" in by itself


class Settings:
    """A mapping of settings that are used up one by one; `notes` collects what is without effect."""

    def __init__(self, values: Mapping[str, Any] | None, where: str, notes: list[str]) -> None:
        if values is not None and not isinstance(values, Mapping):
            raise ValueError(f"{where} is a {type(values).__name__}; it is a dict")
        self._values = dict(values or {})
        self._known: set[str] = set()
        self.where = where
        self.notes = notes

    def take(self, key: str, kind: type = object, choices: Collection[str] | None = None) -> Any:
        """The value of `key`; None when it is absent. ValueError unless it is a `kind` and one of `choices`."""
        value = self._pop(key)
        if value is None:
            return None
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind in (int, float)):
            raise ValueError(f"{self.where}.{key} is {value!r}; it is a {_NAMES.get(kind, kind.__name__)}")
        if choices is not None and value not in choices:
            raise ValueError(unknown_name(f"{self.where}.{key}", value, choices))
        return value

    def section(self, key: str) -> Settings:
        """The mapping under `key`, empty when absent."""
        return Settings(self._pop(key), f"{self.where}.{key}", self.notes)

    def ignore(self, why: str, *keys: str, unless: Iterable[Any] = ()) -> None:
        """Notes each of `keys` that is given, unless its value is one that asks for nothing."""
        for key in keys:
            value = self._pop(key)
            if value is not None and value not in tuple(unless):
                self.notes.append(f"{self.where}.{key} has no effect: {why}")

    def refuse(self, why: str, *keys: str, unless: Iterable[Any] = ()) -> None:
        """ValueError for each of `keys` that is given, unless its value is one that asks for nothing."""
        for key in keys:
            value = self._pop(key)
            if value is not None and value not in tuple(unless):
                raise ValueError(f"{self.where}.{key} = {value!r} cannot be done here: {why}")

    def end(self) -> None:
        """ValueError for the first key that nobody asked for."""
        for key in self._values:
            raise ValueError(unknown_name(f"{self.where} key", key, self._known))

    def _pop(self, key: str) -> Any:
        self._known.add(key)
        value = self._values.pop(key, None)
        return None if isinstance(value, str | None) and value in _ABSENT else value


_NAMES = {float: "number", int: "whole number", str: "text", bool: "bool", dict: "dict", list: "list"}


class Chosen(dict[str, Any]):
    """What was chosen so far, and where: two places that disagree are an error."""

    def __init__(self) -> None:
        super().__init__()
        self._origin: dict[str, str] = {}

    def put(self, name: str, value: Any, where: str) -> None:
        """Records `value` unless it is None."""
        if value is None:
            return
        if name in self and self[name] != value:
            raise ValueError(f"{where} says {value!r} and {self._origin[name]} says {self[name]!r}; say it once")
        self[name] = value
        self._origin.setdefault(name, where)
