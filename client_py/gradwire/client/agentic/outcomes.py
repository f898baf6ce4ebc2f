"""How an agent's run ends. Only what the policy itself brought about may be compared with other runs."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """How a run ended."""

    OK = "ok"
    """The agent came to its end."""
    TRUNCATED = "truncated"
    """The model used up its tokens or turns."""
    TIMEOUT = "timeout"
    """Time ran out: of the run, of a call or of a tool."""
    ENV_ERROR = "env_error"
    """The environment or a tool failed."""
    INFRA_ERROR = "infra_error"
    """The server, the network or the machine failed."""
    CANCELLED = "cancelled"
    """Somebody ended it."""


POLICY_OUTCOMES = frozenset({Outcome.OK, Outcome.TRUNCATED})
"""Those whose reward says something about the policy. A crash that counted as reward 0 would teach the model to
avoid whatever it had done before."""


def outcome_of(value: object) -> Outcome:
    """`value` as an Outcome. ValueError names those that there are."""
    try:
        return Outcome(str(value))
    except ValueError:
        raise ValueError(f"outcome is {value!r}; it is one of {', '.join(Outcome)}") from None
