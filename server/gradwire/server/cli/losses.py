"""`gradwire losses list | check FILE.json`: the registry of losses, and proof of what they compute.

Knows: printing. Does not know: formulas (gradwire.server.losses) or the cases' format (losses.cases).
"""

import argparse
import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from gradwire.server.cli import missing_package
from gradwire.server.cli.usage import add_json, fail
from gradwire.server.errors import GradwireError
from gradwire.server.losses.cases import KEY_OF, CaseError, LossCase, evaluate, read_cases, refusal
from gradwire.server.losses.contract import LossPluginError, rules_of
from gradwire.server.losses.registry import ALIASES, Loss, loss_names, resolve_loss

TOLERANCE = 1e-9
WIDTH = 100


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What came of one case. Numbers are None where the case was refused."""

    agrees: bool
    said: str
    loss: float | None = None
    by_loss: float | None = None
    by_gradient: float | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `list` and `check`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    lists = actions.add_parser("list", help="all losses, built in and installed: aliases, options and their defaults")
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
    for action in (lists, check):
        add_json(action)


def run(args: argparse.Namespace) -> int:
    """Exit code."""
    try:
        names = loss_names()
    except LossPluginError as error:  # what is installed as a loss is none, or takes another's name
        return fail("losses", error, for_programs=args.json)
    try:
        if args.action == "list":
            return _list([resolve_loss(name) for name in names], args.json)
        return _check(args.file, args.tolerance, args.json)
    except ModuleNotFoundError as error:
        return missing_package("losses", error, for_programs=args.json)


def _list(losses: Sequence[Loss], as_json: bool) -> int:
    rows = [_row(loss) for loss in losses]
    if as_json:
        print(json.dumps([{**row, "options": _for_json(row["options"])} for row in rows]))
        return 0
    for row in rows:
        print(f"{row['name']}: {row['summary']}" + (f" ({row['source']})" if row["source"] else ""))
        if row["aliases"]:
            print(f"  also as: {', '.join(row['aliases'])}")
        options = ", ".join(f"{name}={value!r}" for name, value in row["options"].items())
        print(textwrap.fill(f"options: {options}", WIDTH, initial_indent="  ", subsequent_indent="    "))
        if row["needs"]:
            print(f"  needs: {', '.join(row['needs'])}")
    return 0


def _row(loss: Loss) -> dict[str, Any]:
    """What is told of a loss: `options` by name with their defaults, `needs` in words."""
    defaults = loss.config_type()
    return {
        "name": loss.name,
        "summary": loss.summary,
        "source": loss.source,
        "aliases": [alias for alias, target in ALIASES.items() if target == loss.name],
        "options": {field.name: getattr(defaults, field.name) for field in fields(loss.config_type)},
        "needs": _needs(loss),
    }


def _for_json(options: dict[str, Any]) -> dict[str, Any]:
    """What JSON has not, such as an installed loss's default of infinity, as Python writes it."""
    found = {}
    for name, value in options.items():
        try:
            json.dumps(value, allow_nan=False)
            found[name] = value
        except (TypeError, ValueError):
            found[name] = repr(value)
    return found


def _needs(loss: Loss) -> list[str]:
    """What a batch must have, by the names of a request. Missing advantages are 1, so they are not among it."""
    needed = {*loss.columns, *rules_of(loss.config_type()).needed} - {"advantages"}
    columns = sorted(KEY_OF.get(name, name) for name in needed)
    rows = [f"rows in groups of {loss.rows_together}"] if loss.rows_together > 1 else []
    return [*columns, *rows]


def _check(path: Path, tolerance: float, as_json: bool) -> int:
    try:
        cases = read_cases(path)
    except (OSError, CaseError) as error:
        why = (error.strerror or error) if isinstance(error, OSError) else error
        return fail("losses check", error, f"{path}: {why}", for_programs=as_json, exit_code=2)
    rows = []
    for index, case in enumerate(cases):
        verdict = _compare(case, tolerance)
        rows.append(_verdict_row(case, verdict))
        if not as_json:
            print(f"{'ok  ' if verdict.agrees else 'MISS'} cases[{index}] {case.title}: {verdict.said}", flush=True)
    agree = sum(row["agrees"] for row in rows)
    if as_json:
        print(json.dumps({"tolerance": tolerance, "num_agree": agree, "cases": rows}))
    else:
        print(f"{agree} of {len(cases)} cases agree to {tolerance:g}")
    return 0 if agree == len(cases) else 1


def _verdict_row(case: LossCase, verdict: _Verdict) -> dict[str, Any]:
    """A case's end as JSON, which has no NaN and no infinity: null, as for a case that was refused."""
    numbers = {
        "loss": verdict.loss,
        "loss_difference": verdict.by_loss,
        "gradient_difference": verdict.by_gradient,
    }
    finite = {name: value if value is not None and math.isfinite(value) else None for name, value in numbers.items()}
    return {"title": case.title, "agrees": verdict.agrees, "message": verdict.said, **finite}


def _compare(case: LossCase, tolerance: float) -> _Verdict:
    try:
        loss, gradient = evaluate(case)
    except GradwireError as error:
        return _Verdict(False, refusal(error))
    by_loss = abs(loss - case.expected_loss)
    off = np.abs(gradient - case.expected_gradient)
    by_gradient = float(off.max())
    # A comparison with NaN is false, so a number that is not one is a miss.
    agrees = by_loss <= tolerance and by_gradient <= tolerance
    if agrees:
        said = f"loss {loss:.12g}, differences {by_loss:.1e} and {by_gradient:.1e} (gradient)"
    elif not by_loss <= tolerance:
        said = f"loss is {loss:.15g}, the case says {case.expected_loss:.15g}"
    else:
        at = tuple(int(index) for index in np.unravel_index(int(np.nanargmax(off)), off.shape))
        said = (
            f"the loss agrees, but its gradient by logits{list(at)} is {gradient[at]:.15g}, "
            f"the case says {case.expected_gradient[at]:.15g}"
        )
    return _Verdict(agrees, said, loss, by_loss, by_gradient)


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be finite and >= 0, is {text}")
    return value
