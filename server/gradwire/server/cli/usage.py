"""Command lines that cannot be read: argparse's words for a person, or with --json an object for a program.

Knows: argparse. Does not know: commands.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

USAGE_EXIT_CODE = 2  # argparse's own


class UsageError(Exception):
    """A command line that `parser` cannot read."""

    def __init__(self, parser: argparse.ArgumentParser, message: str) -> None:
        super().__init__(message)
        self.parser = parser


class Parser(argparse.ArgumentParser):
    """Leaves to its caller how to say what is wrong. Parsers of its subcommands are of this class, too."""

    def error(self, message: str) -> NoReturn:
        """Raises UsageError."""
        raise UsageError(self, message)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether --json is among them, also as argparse lets it be shortened. What follows "--" is no flag."""
    flags = arguments[: arguments.index("--")] if "--" in arguments else arguments
    names = [flag.partition("=")[0] for flag in flags]  # it takes no value, and who gives it one is told so
    return any(len(name) > 2 and "--json".startswith(name) for name in names)


def refuse(error: UsageError, *, for_programs: bool) -> NoReturn:
    """Says what is wrong on standard error, and exits with 2."""
    if not for_programs:
        argparse.ArgumentParser.error(error.parser, str(error))
    from gradwire.client.reporting import report  # here: without an error, `--help` needs no client

    prog = error.parser.prog
    report(prog, error, f"{error} (usage: {prog} --help)", for_programs=True)
    raise SystemExit(USAGE_EXIT_CODE)
