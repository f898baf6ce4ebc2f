"""`python -m gradwire.client.compat SCRIPT`: runs a script that imports the documented module paths.

Knows: which module of gradwire's stands behind which documented path. The paths exist only in this process, and
only where no package of that name is installed (`--override` puts gradwire's in front all the same). A script may
`await` at its top level, as the documents' examples do.

`TABLE` is all there is to add for further documents.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NoReturn

TABLE: Mapping[str, str | None] = {
    "agentic_rl": "gradwire.client.agentic",
    "agentic_rl.memory": "gradwire.client.agentic.memory",
    "agentic_rl.memory.memory_simple": "gradwire.client.agentic.memory",
    "agentic_rl.memory.memory_summary": "gradwire.client.agentic.memory",
    "agentic_rl.memory.summary_client": "gradwire.client.agentic.memory",
    "agentic_rl.memory.token_counter": "gradwire.client.agentic.memory.tokens",
    "agentic_rl.runner": "gradwire.client.agentic",
    "agilerl": None,
    "agilerl.arena": "gradwire.client.arena",
    "agilerl.arena.exceptions": "gradwire.client.arena.errors",
    "agilerl.arena.inference": "gradwire.client.arena",
    "agilerl.arena.inference.agent": "gradwire.client.arena",
    "agilerl.arena.inference.serde": "gradwire.client.arena.serde",
    "arctic_platform": None,
    "arctic_platform.rl": "gradwire.client.arctic",
    "arctic_platform.rl.client": "gradwire.client.arctic",
    "arctic_platform.rl.config": "gradwire.client.arctic.config",
}
"""Documented path -> the module whose public names it has; None is an empty package. Parents are listed too."""


class _Alias(Loader):
    """Makes a module that has the public names of another."""

    def __init__(self, target: str | None) -> None:
        self._target = target

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # an ordinary one

    def exec_module(self, module: ModuleType) -> None:
        if self._target is not None:
            target = importlib.import_module(self._target)
            public = getattr(target, "__all__", None) or [name for name in vars(target) if not name.startswith("_")]
            vars(module).update({name: getattr(target, name) for name in public})
            module.__all__ = list(public)  # type: ignore[attr-defined]
            module.__doc__ = f"{module.__name__}, as {self._target} provides it."


class CompatFinder(MetaPathFinder):
    """Finds the paths of a table."""

    def __init__(self, table: Mapping[str, str | None], *, override: bool = False) -> None:
        self._table = table
        self._override = override

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec for a path of the table, unless the package it belongs to is installed."""
        if name not in self._table or (not self._override and self._installed(name.partition(".")[0])):
            return None
        return importlib.util.spec_from_loader(name, _Alias(self._table[name]), is_package=True)

    def _installed(self, package: str) -> bool:
        loaded = sys.modules.get(package)
        if loaded is not None:
            return not isinstance(loaded.__loader__, _Alias)
        others = (finder for finder in sys.meta_path if not isinstance(finder, CompatFinder))
        return any(finder.find_spec(package, None) is not None for finder in others)


def install(table: Mapping[str, str | None] = TABLE, *, override: bool = False) -> CompatFinder:
    """Makes the documented paths importable in this process."""
    finder = CompatFinder(table, override=override)
    sys.meta_path.insert(0, finder)
    return finder


def run(script: str | Path) -> None:
    """Runs a script as `__main__`; with a top-level await, inside an event loop."""
    path = Path(script)
    code = compile(path.read_bytes(), str(path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    main = ModuleType("__main__")
    main.__file__ = str(path)
    sys.modules["__main__"] = main
    result = eval(code, vars(main))
    if inspect.iscoroutine(result):
        asyncio.run(result)


class _Parser(argparse.ArgumentParser):
    """Whoever calls it wrongly has not seen what it is for: all of the help, then what was wrong."""

    def error(self, message: str) -> NoReturn:
        self.print_help(sys.stderr)
        self.exit(2, f"\n{self.prog}: {message}\n")


def _epilog() -> str:
    width = max(map(len, TABLE))
    paths = (f"  {path:{width}}  {target}" for path, target in TABLE.items() if target)
    example = "python -m gradwire.client.compat train.py --steps 10"
    return "\n".join(["what a script may import, and what it gets:", *paths, "", "example:", f"  {example}"])


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the script; its arguments follow its name. Exits with 2 when there is no such file."""
    parser = _Parser(
        prog="python -m gradwire.client.compat",
        description="Runs a script that imports the documented module paths, with gradwire's clients behind them.",
        epilog=_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--override", action="store_true", help="stand in even for packages that are installed")
    parser.add_argument("script", metavar="SCRIPT", help="the Python file to run; it may await at its top level")
    rest = parser.add_argument("arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER, help="of the script")
    rest.required = False  # or argparse asks for them beside a missing script
    given = parser.parse_args(argv)
    if not Path(given.script).is_file():
        parser.error(f"there is no file {given.script}")
    install(override=given.override)
    sys.argv = [given.script, *given.arguments]
    sys.path.insert(0, str(Path(given.script).resolve().parent))
    run(given.script)
    return 0


if __name__ == "__main__":
    sys.exit(main())
