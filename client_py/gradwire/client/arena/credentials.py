"""Who is calling: a person's own key, or an organisation's with one of its users.

Knows: the environment's defaults, and which belong together. A credential is in no repr, log or file.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from gradwire.client.arena.errors import ArenaAuthError

EXTERNAL_USER_HEADER = "x-external-user-id"
_EXTERNAL_USER = re.compile(r"[\x21-\x7e]{1,200}")


@dataclass(frozen=True, slots=True)
class Credential:
    """What each call carries."""

    token: str | None = field(repr=False)
    """The bearer token. None: GRADWIRE_TOKEN, or no credential."""
    external_user_id: str | None = None
    """Whom an organisation's key acts for."""

    @property
    def metadata(self) -> dict[str, str]:
        """What goes with each call beside the token."""
        return {EXTERNAL_USER_HEADER: self.external_user_id} if self.external_user_id else {}


def find_credential(api_key: str | None, org_key: str | None, external_user_id: str | None) -> Credential:
    """From the arguments, then ARENA_API_KEY, ARENA_ORG_KEY and ARENA_EXTERNAL_USER_ID.

    An organisation's key and an external user come together or not at all, else ArenaAuthError. They are taken
    before an `api_key`, except that one given here comes before a pair that only the environment has.
    """
    keys = {"api_key": api_key, "org_key": org_key, "external_user_id": external_user_id}
    for name, value in keys.items():
        if not isinstance(value, str | None):
            raise ArenaAuthError(f"{name} is of type {type(value).__name__}; it takes text.")
    if api_key and not org_key and not external_user_id:
        return Credential(api_key)
    org_key = org_key or os.environ.get("ARENA_ORG_KEY") or None
    external_user_id = external_user_id or os.environ.get("ARENA_EXTERNAL_USER_ID") or None
    if (org_key is None) != (external_user_id is None):
        given, missing = ("org_key", "external_user_id") if org_key else ("external_user_id", "org_key")
        raise ArenaAuthError(
            f"{given} needs {missing}: an organisation's key acts for one of its users.",
            sdk_hint=f"Pass {missing}=, or set ARENA_{missing.upper()}.",
            cli_hint=f"Set ARENA_{missing.upper()}.",
        )
    if org_key and external_user_id:
        if not _EXTERNAL_USER.fullmatch(external_user_id):
            raise ArenaAuthError("external_user_id must be 1 to 200 visible ASCII characters without spaces.")
        return Credential(org_key, external_user_id)
    return Credential(api_key or os.environ.get("ARENA_API_KEY") or None)
