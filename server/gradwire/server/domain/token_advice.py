"""For whoever is refused: the command that makes a token which would not be. One wording for all doors."""

from __future__ import annotations

import shlex

from gradwire.server.domain.caller import Caller

_MAKE = "whoever has the scope admin makes one: gradwire token create"


def any_token() -> str:
    """For callers whom nobody knows."""
    return f"{_MAKE} --tenant NAME --scope SCOPE (inference, training or admin)"


def with_scope(caller: Caller, scope: str) -> str:
    """For a known caller: the same tenant, person and scopes, and `scope` (a name of `Caller.scopes`) as well."""
    flags = ["--tenant", shlex.quote(caller.tenant)]
    owner, _, name = caller.user.partition(":")
    if owner == "user":
        flags += ["--user", shlex.quote(name)]
    elif owner == "external":
        flags.append("--organization")
    for each in sorted({*caller.scopes, scope}):
        flags += ["--scope", each.lower()]
    return f"{_MAKE} {' '.join(flags)}"
