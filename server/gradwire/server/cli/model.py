"""`gradwire model list | pull NAME | path NAME`: the models that the engines can load.

Knows: printing. Does not know: how models are found or built (gradwire.server.models).
Only the answer goes to standard output, so `$(gradwire model path tiny)` works in a script.
"""

import argparse
import json
import os
import sys
from typing import Any

from gradwire.server.cli import missing_package
from gradwire.server.cli.usage import add_json, fail
from gradwire.server.models.catalog import CATALOG
from gradwire.server.models.recipes import Recipe, RecipeError
from gradwire.server.models.resolve import ModelNotFoundError, cached_folder, resolve_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `list`, `pull` and `path`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add_json(actions.add_parser("list", help="the built-in models, and which are in the cache"))
    for name, summary in (("pull", "build or fetch a model now"), ("path", "print a model's folder")):
        action = actions.add_parser(name, help=summary)
        action.add_argument("name", help="a built-in name, a folder, or a hub id")
        add_json(action)


def run(args: argparse.Namespace) -> int:
    """Exit code 0, or 1 with the reason on standard error."""
    if args.action == "list":
        return _list(args.json)
    if args.json:
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # a program reads standard error, too
    try:
        folder = resolve_model(args.name, progress=None if args.json else _to_stderr)
    except (ModelNotFoundError, RecipeError, OSError) as error:
        return fail("model", error, for_programs=args.json)
    except ModuleNotFoundError as error:
        return missing_package("model", error, for_programs=args.json)
    print(json.dumps({"name": args.name, "path": str(folder)}) if args.json else folder)
    return 0


def _list(as_json: bool) -> int:
    rows = [_row(recipe) for recipe in CATALOG.values()]
    if as_json:
        print(json.dumps(rows))
        return 0
    width = max(map(len, CATALOG))
    for row in rows:
        state = "in the cache" if row["path"] else "built on first use"
        print(f"{row['name']:<{width}}  {row['summary']}  ({state})")
    return 0


def _row(recipe: Recipe) -> dict[str, Any]:
    """A built-in model as JSON; without a path while it is not built."""
    folder = cached_folder(recipe)
    return {"name": recipe.name, "summary": recipe.summary, "path": str(folder) if folder.is_dir() else None}


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
