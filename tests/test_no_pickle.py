"""Nothing that came from outside is ever unpickled: no module of ours can, and vLLM is never told that it may."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(file for folder in ("server", "client_py") for file in (ROOT / folder).rglob("*.py"))
MODULES = {"pickle", "_pickle", "cPickle", "marshal", "cloudpickle", "dill", "shelve", "joblib"}
CALLS = {
    "torch.load", "torch.save", "torch.jit.load", "torch.package", "torch.serialization",
    "pandas.read_pickle", "pd.read_pickle", "multiprocessing.Pipe", "multiprocessing.Queue",
}  # fmt: skip
INSECURE = "VLLM_ALLOW_INSECURE_SERIALIZATION"


def dotted(node: ast.AST) -> str:
    """`torch.load` of the expression that it is; "" for others."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def problems(source: str) -> Iterator[str]:
    """What in a source can read or write a pickle."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                names = [alias.name for alias in node.names]
                yield from (f"imports {name}" for name in names if name.split(".")[0] in MODULES or name in CALLS)
            case ast.ImportFrom():
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                yield from (f"imports {name}" for name in names if name.split(".")[0] in MODULES or name in CALLS)
            case ast.Attribute():
                name = dotted(node)
                if name in CALLS or name.split(".")[0] in MODULES:
                    yield f"uses {name}"
            case ast.keyword(arg="allow_pickle", value=value):
                if not (isinstance(value, ast.Constant) and value.value is False):
                    yield "passes allow_pickle"
            case ast.keyword(arg="weights_only" | "trust_remote_code", value=value):
                safe = node.arg == "weights_only"
                if not (isinstance(value, ast.Constant) and value.value is safe):
                    yield f"passes {node.arg}"
            case ast.Constant(value=str() as text) if text in MODULES:
                yield f"names the module {text}"
            case _:
                pass


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_file_can_read_or_write_a_pickle(file: Path) -> None:
    assert list(problems(file.read_text())) == []


def test_vllm_is_never_told_to_unpickle() -> None:
    places = [
        *FILES,
        *(file for name in ("Dockerfile", "Makefile", "pyproject.toml") if (file := ROOT / name).exists()),
    ]
    assert [file for file in places if INSECURE in file.read_text()] == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import os, pickle as p",
        "from pickle import loads",
        "from torch import load",
        "import torch\ntorch.load('x')",
        "import torch\ntorch.save({}, 'x')",
        "np.load('x', allow_pickle=True)",
        "np.load('x', allow_pickle=flag)",
        "importlib.import_module('pickle')",
        "def f():\n    import dill",
        "AutoModel.from_pretrained(x, trust_remote_code=True)",
    ],
)
def test_the_check_finds_what_it_is_for(source: str) -> None:
    assert list(problems(source))


def test_the_check_lets_the_rest_be() -> None:
    assert not list(problems("np.load('x', allow_pickle=False)\nx.load('y')\n'it is never a pickle'"))


def test_there_is_something_to_check() -> None:
    assert len(FILES) > 100
