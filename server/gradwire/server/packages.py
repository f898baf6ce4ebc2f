"""Packages that only some installations of the server have.

Knows: how to say what is missing. Does not know: who takes which.
"""

from __future__ import annotations

from importlib.util import find_spec

from gradwire.server.errors import FailedPrecondition

ENGINES = "make setup, or GRADWIRE_EXTRAS=gpu make setup"
"""What installs vLLM and DeepSpeed."""


def require(package: str, install: str, *, reason: str) -> None:
    """FailedPrecondition when a package is not installed; `install` is the command that brings it. Imports nothing."""
    if find_spec(package) is None:
        text = f"this server was installed without {package}: in gradwire's source folder, {install}"
        raise FailedPrecondition(reason, text)
