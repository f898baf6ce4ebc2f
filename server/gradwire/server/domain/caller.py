"""Who is calling. Set by the doors for the length of a call, read by the domain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass

LOCAL_TENANT = "local"


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller.

    `tenant` is the organisation: it owns jobs and checkpoints, and conversations that an organisation shares.
    `user` is the person in it, who owns the other conversations; it says where it comes from ("user:", "external:",
    "token:"), so that a person of ours and a partner's user of the same name are two. `scopes` are names of
    `gradwire.v1.Scope` without the prefix. `name` is the token's id, for logs. `expires_at` is the end of its
    lifetime (Unix microseconds; None: it has none).
    """

    tenant: str
    name: str
    scopes: frozenset[str]
    same_host: bool = False
    user: str = "user:local"
    expires_at: int | None = None

    @property
    def may_see_deployments(self) -> bool:
        """Which there are, and what is wrong with one: of those who may use or make them."""
        return not self.scopes.isdisjoint(("INFERENCE", "ADMIN"))


LOCAL_CALLER = Caller(LOCAL_TENANT, "local", frozenset({"INFERENCE", "TRAINING", "ADMIN"}))
ANONYMOUS = Caller("", "anonymous", frozenset(), user="")
"""Whoever sent no token, in a call that takes none: owns nothing, may do nothing else."""
# Where no door has said who calls, nobody does.
_current: ContextVar[Caller] = ContextVar("gradwire_caller", default=ANONYMOUS)
_ask_again: ContextVar[Callable[[], Awaitable[None]] | None] = ContextVar("gradwire_ask_again", default=None)


def current_caller() -> Caller:
    """The caller of the call that this task serves."""
    return _current.get()


def set_caller(caller: Caller, ask_again: Callable[[], Awaitable[None]] | None = None) -> None:
    """Remember the caller for the rest of this task, and how to find out whether it is one still."""
    _current.set(caller)
    _ask_again.set(ask_again)


async def confirm_caller() -> None:
    """Who calls is asked again: a call that lasts as long as its client likes may outlive the caller's token.

    Raises Unauthenticated when the token was revoked or has expired.
    """
    ask_again = _ask_again.get()
    if ask_again is not None:
        await ask_again()
