"""Who is calling. Set by the doors for the length of a call, read by the domain."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

LOCAL_TENANT = "local"


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller. `scopes` are names of `gradwire.v1.Scope` without the prefix."""

    tenant: str
    name: str
    scopes: frozenset[str]
    same_host: bool = False


LOCAL_CALLER = Caller(LOCAL_TENANT, "local", frozenset({"INFERENCE", "TRAINING", "ADMIN"}))
_current: ContextVar[Caller] = ContextVar("gradwire_caller", default=LOCAL_CALLER)


def current_caller() -> Caller:
    """The caller of the call that this task serves."""
    return _current.get()


def set_caller(caller: Caller) -> None:
    """Remember the caller for the rest of this task."""
    _current.set(caller)
