"""An engine from a file: the one class in it that derives from `BaseEngineWrapper`."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from gradwire.client.agentic.engine.wrapper import BaseEngineWrapper


class EngineLoadError(ImportError):
    """No engine is to be had from a file; `path` names it, and the text says why."""


def load_engine_class(path: str | Path, name: str | None = None) -> type[BaseEngineWrapper]:
    """The engine class that a file defines; `name` chooses among several. Classes that it imports do not count.

    The file runs, as a module of its own; its folder is on the import path then, as a script's is. A file that is
    loaded again gives the same module, unless it has changed.

    EngineLoadError when there is no such file, it fails (with the line), or it has no such class, or several.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise _error(file, "there is no such file" if not file.exists() else "it is no file")
    if file.suffix != ".py":
        raise _error(file, "an engine's file is a Python file, NAME.py")
    module = _module(file)
    found = {
        key: value
        for key, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, BaseEngineWrapper) and value.__module__ == module.__name__
    }
    if name is not None:
        if name not in found:
            raise _error(file, f"it has no engine {name!r}; engines in it: {', '.join(found) or 'none'}")
        found = {name: found[name]}
    if not found:
        raise _error(file, "no class in it derives from BaseEngineWrapper")
    # What the others derive from is no engine where it leaves something undone.
    whole = {value for value in found.values() if not inspect.isabstract(value)}
    if len(whole) > 1:
        raise _error(file, f"it has several engines ({', '.join(found)}); name the one that is meant")
    if not whole:
        chosen = next(iter(found.values()))
        raise _error(file, f"{chosen.__name__} does not define {' and '.join(sorted(chosen.__abstractmethods__))}")
    return whole.pop()


def load_engine(
    path: str | Path, server_addresses: Sequence[str], *, name: str | None = None, token: str | None = None,
    **arguments: Any,
) -> BaseEngineWrapper:  # fmt: skip
    """An engine that is ready for tasks: loaded, made with `arguments`, connected and initialised.

    Raises what those steps raise; see `load_engine_class`, `BaseEngineWrapper` and its `connect`.
    """
    engine = load_engine_class(path, name)(**arguments)
    engine.connect(server_addresses, token=token)
    engine.initialize()
    return engine


def _module(file: Path) -> ModuleType:
    content = file.read_bytes()
    name = f"gradwire_engine_{hashlib.sha256(str(file).encode() + content).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None  # it ends in .py
    module = importlib.util.module_from_spec(spec)
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))  # last: nothing in it stands in for what is installed
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]  # half a module must not be what the next attempt gets
        if not isinstance(error, (Exception, SystemExit)):
            raise
        raise _error(file, f"{_place(file, error)}{type(error).__name__}: {error}") from error
    return module


def _place(file: Path, error: BaseException) -> str:
    """`line N: `, the last of the file's own that ran."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"line {error.lineno}: "
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f"line {lines[-1]}: " if lines else ""


def _error(file: Path, text: str) -> EngineLoadError:
    return EngineLoadError(f"cannot load an engine from {file}: {text}", path=str(file))
