"""Packages that only some extra of gradwire's brings: what is missing is told with what to install.

Knows: how an extra is installed. Does not know: who takes which.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def extra(name: str, who: str) -> Iterator[None]:
    """Around imports that `who` takes, and the extra `name` brings.

    ImportError, with what to install, in place of Python's ModuleNotFoundError. A missing module of gradwire's is a
    bug, and says so itself.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "gradwire"):
            raise
        raise not_installed(package, name, who) from error


def not_installed(package: str, name: str, who: str) -> ImportError:
    """The error of `who`, which takes a package of the extra `name`."""
    text = f"{who} takes {package}, which is not installed: in gradwire's source folder, pip install -e '.[{name}]'"
    return ImportError(text, name=package)
