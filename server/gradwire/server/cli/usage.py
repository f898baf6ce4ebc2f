"""What all commands' lines have in common: --json, and how a command says that it failed.

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


def add_json(parser: argparse.ArgumentParser) -> None:
    """--json, as every command but `serve` takes it."""
    parser.add_argument("--json", action="store_true", help="for programs; errors, too")


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether --json is among them, also as argparse lets it be shortened. What follows "--" is no flag."""
    flags = arguments[: arguments.index("--")] if "--" in arguments else arguments
    names = [flag.partition("=")[0] for flag in flags]  # it takes no value, and who gives it one is told so
    return any(len(name) > 2 and "--json".startswith(name) for name in names)


def fail(command: str, error: Exception, text: str = "", *, for_programs: bool, exit_code: int = 1) -> int:
    """Says why a command that asks no server failed, on standard error; its exit code. `text`: see `report`."""
    from gradwire.client.reporting import report  # here: without an error, such a command needs no client

    report(command, error, text, for_programs=for_programs)
    return exit_code


def refuse(error: UsageError, *, for_programs: bool) -> NoReturn:
    """Says what is wrong with a command line on standard error, for a person in argparse's words, and exits with 2."""
    if not for_programs:
        argparse.ArgumentParser.error(error.parser, str(error))
    prog = error.parser.prog
    text = f"{error} (usage: {prog} --help)"
    raise SystemExit(fail(prog, error, text, for_programs=True, exit_code=USAGE_EXIT_CODE))
