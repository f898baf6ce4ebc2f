"""`gradwire losses list | check FILE.json`: the registry of losses, and proof of what they compute.

Knows: printing. Does not know: formulas (gradwire.server.losses) or the cases' format (losses.cases).
"""

import argparse
import sys
import textwrap
from dataclasses import fields
from pathlib import Path

import numpy as np

from gradwire.server.cli import missing_package
from gradwire.server.errors import GradwireError
from gradwire.server.losses.cases import KEY_OF, CaseError, LossCase, evaluate, read_cases, refusal
from gradwire.server.losses.registry import ALIASES, Loss, loss_names, resolve_loss

TOLERANCE = 1e-9
WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `list` and `check`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="all losses, built in and installed: aliases, options and their defaults")
    check = actions.add_parser(
        "check",
        help="compare losses with worked cases, in float64",
        description="Evaluates each case of a JSON file: loss, and gradient by the logits. A line a case; the exit "
        "code is 1 when one is missed, 2 when the file cannot be used.",
    )
    check.add_argument("file", type=Path, help="JSON file of cases (the format: docs/own_losses.md)")
    check.add_argument(
        "--tolerance",
        type=_tolerance,
        default=TOLERANCE,
        metavar="X",
        help=f"largest difference allowed, absolute (default {TOLERANCE:g})",
    )


def run(args: argparse.Namespace) -> int:
    """Exit code."""
    try:
        if args.action == "list":
            return _list()
        return _check(args.file, args.tolerance)
    except ModuleNotFoundError as error:
        return missing_package("losses", error)


def _list() -> int:
    for name in loss_names():
        loss = resolve_loss(name)
        print(f"{name}: {loss.summary}" + (f" ({loss.source})" if loss.source else ""))
        aliases = [alias for alias, target in ALIASES.items() if target == name]
        if aliases:
            print(f"  also as: {', '.join(aliases)}")
        options = ", ".join(
            f"{field.name}={getattr(loss.parse({}), field.name)!r}" for field in fields(loss.config_type)
        )
        print(textwrap.fill(f"options: {options}", WIDTH, initial_indent="  ", subsequent_indent="    "))
        if needs := _needs(loss):
            print(f"  needs: {needs}")
    return 0


def _needs(loss: Loss) -> str:
    """What a batch must have, by the names of a request. Missing advantages are 1, so they are not among it."""
    needed = {*loss.columns, *loss.parse({}).columns().needed} - {"advantages"}
    columns = sorted(KEY_OF.get(name, name) for name in needed)
    rows = [f"rows in groups of {loss.rows_together}"] if loss.rows_together > 1 else []
    return ", ".join([*columns, *rows])


def _check(path: Path, tolerance: float) -> int:
    try:
        cases = read_cases(path)
    except OSError as error:
        return _unusable(f"{path}: {error.strerror or error}")
    except CaseError as error:
        return _unusable(f"{path}: {error}")
    missed = 0
    for index, case in enumerate(cases):
        found, said = _compare(case, tolerance)
        missed += not found
        print(f"{'ok  ' if found else 'MISS'} cases[{index}] {case.title}: {said}", flush=True)
    print(f"{len(cases) - missed} of {len(cases)} cases agree to {tolerance:g}")
    return 1 if missed else 0


def _compare(case: LossCase, tolerance: float) -> tuple[bool, str]:
    try:
        loss, gradient = evaluate(case)
    except GradwireError as error:
        return False, refusal(error)
    by_loss = abs(loss - case.expected_loss)
    off = np.abs(gradient - case.expected_gradient)
    by_gradient = float(off.max())
    # A comparison with NaN is false, so a number that is not one is a miss.
    if by_loss <= tolerance and by_gradient <= tolerance:
        return True, f"loss {loss:.12g}, differences {by_loss:.1e} and {by_gradient:.1e} (gradient)"
    if not by_loss <= tolerance:
        return False, f"loss is {loss:.15g}, the case says {case.expected_loss:.15g}"
    at = tuple(int(index) for index in np.unravel_index(int(np.nanargmax(off)), off.shape))
    return False, (
        f"the loss agrees, but its gradient by logits{list(at)} is {gradient[at]:.15g}, "
        f"the case says {case.expected_gradient[at]:.15g}"
    )


def _unusable(text: str) -> int:
    print(f"gradwire losses check: {text}", file=sys.stderr)
    return 2


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be finite and >= 0, is {text}")
    return value
