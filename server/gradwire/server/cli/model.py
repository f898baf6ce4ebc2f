"""`gradwire model list | pull NAME | path NAME`: the models that the engines can load.

Knows: printing. Does not know: how models are found or built (gradwire.server.models).
Only the answer goes to standard output, so `$(gradwire model path tiny)` works in a script.
"""

import argparse
import sys

from gradwire.server.cli import missing_package
from gradwire.server.models.catalog import CATALOG
from gradwire.server.models.recipes import RecipeError
from gradwire.server.models.resolve import ModelNotFoundError, cached_folder, resolve_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `list`, `pull` and `path`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="the built-in models, and which are in the cache")
    for name, summary in (("pull", "build or fetch a model now"), ("path", "print a model's folder")):
        action = actions.add_parser(name, help=summary)
        action.add_argument("name", help="a built-in name, a folder, or a hub id")


def run(args: argparse.Namespace) -> int:
    """Exit code 0, or 1 with the reason on standard error."""
    if args.action == "list":
        return _list()
    try:
        folder = resolve_model(args.name, progress=_to_stderr)
    except (ModelNotFoundError, RecipeError) as error:
        print(f"gradwire model: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        return missing_package("model", error)
    print(folder)
    return 0


def _list() -> int:
    width = max(map(len, CATALOG))
    for recipe in CATALOG.values():
        state = "in the cache" if cached_folder(recipe).is_dir() else "built on first use"
        print(f"{recipe.name:<{width}}  {recipe.summary}  ({state})")
    return 0


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
