"""The client is light: what importing it loads, and what its types know."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

CLIENT = Path(__file__).parents[2] / "client_py" / "gradwire" / "client"
GRPC_FINDS = """
import os, sys

class Spy:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            print("finds", os.environ.get("GRPC_EXPERIMENTS"))

sys.meta_path.insert(0, Spy())
{}
print("leaves", os.environ.get("GRPC_EXPERIMENTS"))
"""
LOADED = "import sys, gradwire.client; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
ALLOWED = {"gradwire", "buf", "google", "grpc", "numpy"}
# grpc's own import brings these, where they are installed.
GRPC_BRINGS = {"cython_runtime", "grpc_health", "grpc_reflection", "grpc_tools", "typing_extensions"}

# The documented clients: their configurations are pydantic's models.
OF_DOCUMENTS = ("arena", "arctic", "agentic")


def test_importing_the_client_loads_only_its_dependencies() -> None:
    loaded = modules(LOADED) - modules(LOADED.replace(", gradwire.client", ""))
    known = ALLOWED | GRPC_BRINGS | standard_library()
    assert not {name for name in loaded if name.lstrip("_") not in known and not name.startswith("_cython")}
    assert not loaded & {"torch", "vllm", "deepspeed", "transformers", "pydantic", "grpc_status"}


def modules(code: str) -> set[str]:
    """Top-level modules that a fresh process prints."""
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def standard_library() -> set[str]:
    """Names of Python's own modules, private ones without their underscore."""
    return {name.lstrip("_") for name in sys.stdlib_module_names}


@pytest.mark.parametrize(
    ("version", "before", "finds", "leaves"),
    [
        ("1.85.3", "", "-event_engine_client,-event_engine_listener", "None"),
        ("1.85.3", "os.environ['GRPC_EXPERIMENTS'] = 'of-the-user'", "of-the-user", "of-the-user"),
        ("1.85.3", "import grpc", "None", "None"),
        ("1.79.1", "", "None", "None"),
        ("1.86.0", "", "None", "None"),
    ],
)
def test_grpc_is_loaded_with_the_older_poller(version: str, before: str, finds: str, leaves: str) -> None:
    pretend = f"import importlib.metadata as m; m.version = lambda name: {version!r}"
    code = GRPC_FINDS.format("\n".join([before, pretend, "import gradwire.client.arena"]))
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert said == ["finds", finds, "leaves", leaves]


@pytest.mark.parametrize("metadata", ["None", "exec('raise m.PackageNotFoundError(name)')"])
def test_the_client_loads_where_grpc_has_no_version(metadata: str) -> None:
    code = f"import importlib.metadata as m; m.version = lambda name: {metadata}; import gradwire.client"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_pydantic_is_only_of_documented_clients() -> None:
    """What else no client may import, and who may import torch: tests/test_import_rules.py."""
    for path in CLIENT.rglob("*.py"):
        if path.relative_to(CLIENT).parts[0] not in OF_DOCUMENTS:
            for node in ast.walk(ast.parse(path.read_text())):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                assert "pydantic" not in {name.partition(".")[0] for name in names}, path


def test_types_know_no_wire() -> None:
    for path in (CLIENT / "types").glob("*.py"):
        text = path.read_text()
        assert "import grpc" not in text
        assert "gradwire.v1" not in text
        assert "google.protobuf" not in text
