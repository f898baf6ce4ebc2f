"""Imports go one way. The rules of the server's parts, and of the client, as they are checked here:

- domain knows no gRPC and no protobuf: of ours it imports only itself, `errors`, `engines`' value modules
  (acting, base, sampling, scoring, training, weights, sharedmem), `tasks` and nothing that is made for one engine;
- codec and rpc and http and observability know no torch, vLLM or DeepSpeed;
- the HTTP doors do not know each other, and what they share knows none of them;
- engines import neither domain nor rpc nor http, and of codec only `status`: a trainer's worker is a small
  gRPC server itself, and its errors travel as all others do;
- losses and models import no other part, save values of engines;
- the client imports nothing of the server, and Ray in one module only, when it is used;
- generated code is imported only where messages are read or written: in codec, rpc, http, `services`, the client,
  and `gradwire.worker` only by the trainer's two ends.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SERVER = ROOT / "server" / "gradwire" / "server"
CLIENT = ROOT / "client_py" / "gradwire" / "client"
OURS = "gradwire.server."
HEAVY = ("torch", "vllm", "deepspeed", "transformers", "accelerate", "ray", "onnxruntime", "safetensors")
GRPC = ("grpc", "grpc_health", "grpc_reflection", "grpc_status")
GENERATED = ("gradwire.v1", "gradwire.worker", "buf")
VALUES = tuple(
    f"{OURS}engines.{name}"
    for name in ("acting", "base", "openai", "sampling", "scoring", "training", "weights", "sharedmem", "tasks")
)


@cache
def imported(file: Path) -> list[str]:
    """Full names of the modules, or of what may be modules, that a file imports anywhere in it."""
    return list(_imported(file))


def _imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(name: str, modules: tuple[str, ...]) -> bool:
    return any(name == module or name.startswith(module + ".") for module in modules)


def files(*parts: str) -> list[Path]:
    found = [
        file
        for part in parts
        for file in ((SERVER / part).rglob("*.py") if (SERVER / part).is_dir() else [SERVER / part])
    ]
    assert found
    return found


def assert_none(paths: list[Path], forbidden: tuple[str, ...], *, except_for: tuple[str, ...] = ()) -> None:
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in paths
        for name in imported(path)
        if within(name, forbidden) and not within(name, except_for)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_domain_knows_no_wire_and_no_engine() -> None:
    assert_none(files("domain"), (*GRPC, *HEAVY, *GENERATED, "google", "protovalidate", "uvicorn", "starlette"))
    assert_none(files("domain"), (OURS[:-1],), except_for=(f"{OURS}domain", f"{OURS}errors", *VALUES))


def test_nothing_in_front_of_the_engines_imports_what_they_run_on() -> None:
    assert_none(
        files(
            "domain",
            "codec",
            "rpc",
            "http",
            "storage",
            "observability",
            "app.py",
            "rooms.py",
            "services.py",
            "config.py",
            "errors.py",
        ),
        HEAVY,
    )


def test_storage_knows_no_doors_and_only_storage_knows_the_database() -> None:
    allowed = (f"{OURS}storage", f"{OURS}domain", f"{OURS}errors", f"{OURS}packages")
    assert_none(files("storage"), (OURS[:-1], *GRPC, *GENERATED), except_for=allowed)
    others = {*SERVER.rglob("*.py")} - {*files("storage")}
    assert_none(sorted(others), ("sqlalchemy", "aiosqlite", "asyncpg"))


def test_the_codec_does_not_know_the_doors() -> None:
    doors = tuple(f"{OURS}{part}" for part in ("rpc", "http", "app", "cli", "config"))
    assert_none(files("codec"), doors)
    composition = ("app", "cli", "doors", "health", "rooms", "services")
    assert_none(files("rpc", "http"), tuple(f"{OURS}{part}" for part in composition))


def test_the_doors_do_not_know_which_engines_there_are() -> None:
    assert_none(files("codec", "rpc", "http"), (f"{OURS}engines",), except_for=VALUES)


def test_the_http_doors_do_not_know_each_other() -> None:
    doors = {name: f"{OURS}http.{name}" for name in ("connect", "openai", "arena")}
    shared = [file for file in files("http") if file.parent.name == "http"]
    assert shared
    assert_none(shared, tuple(doors.values()))
    for name, door in doors.items():
        assert_none(files(f"http/{name}"), tuple(doors.values()), except_for=(door,))


def test_engines_know_nothing_of_the_server_around_them() -> None:
    around = tuple(f"{OURS}{part}" for part in ("domain", "rpc", "http", "app", "cli", "config", "storage"))
    assert_none(files("engines"), around)
    assert_none(files("engines"), (f"{OURS}codec",), except_for=(f"{OURS}codec.status",))


def test_engines_do_not_know_each_other() -> None:
    assert_none(files("engines/vllm"), (f"{OURS}engines.deepspeed", "deepspeed"))
    assert_none(files("engines/deepspeed"), (f"{OURS}engines.vllm", "vllm"))


def test_only_the_command_can_convert() -> None:
    """Reading a foreign checkpoint runs its code: no part of a running server may be able to."""
    allowed = {*files("convert"), *files("cli/policy.py")}
    assert_none(sorted({*SERVER.rglob("*.py")} - allowed), (f"{OURS}convert",))
    inside = [file for file in files("convert") if file.name != "runner.py"]
    assert_none(inside, (OURS[:-1],), except_for=(f"{OURS}convert",))


def test_losses_and_models_stand_alone() -> None:
    allowed = (f"{OURS}losses", f"{OURS}models", f"{OURS}errors", f"{OURS}packages", *VALUES)
    assert_none(files("losses", "models"), (OURS[:-1],), except_for=allowed)


def test_the_client_imports_nothing_of_the_server() -> None:
    clients = list(CLIENT.rglob("*.py"))
    assert clients
    # Trajectories hold torch tensors, prompts are measured by the model's tokenizer, and Ray finds a server: each is
    # imported where it is used, which the test below shows.
    agentic = [path for path in clients if path.is_relative_to(CLIENT / "agentic")]
    by_ray = [CLIENT / "arctic" / "ray_server.py"]
    assert agentic
    others = [path for path in clients if path not in agentic + by_ray]
    assert_none(others, (OURS[:-1], "gradwire.worker", *HEAVY))
    assert_none(agentic, (OURS[:-1], "gradwire.worker", *HEAVY), except_for=("torch", "transformers"))
    assert_none(by_ray, (OURS[:-1], "gradwire.worker", *HEAVY), except_for=("ray",))


def test_generated_code_is_imported_only_where_messages_are_handled() -> None:
    public = {*files("codec", "rpc", "http", "services.py")}
    worker = {*files("engines/deepspeed")}
    everything = {*SERVER.rglob("*.py")}
    assert_none(sorted(everything - public), ("gradwire.v1", "buf"))
    assert_none(sorted(everything - worker), ("gradwire.worker",))


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("gradwire.server.app", ("torch", "vllm", "deepspeed", "transformers")),
        ("gradwire.client", (*HEAVY, "gradwire.server", "uvicorn", "protovalidate")),
        ("gradwire.client.agentic", (*HEAVY, "gradwire.server", "openai")),
        ("gradwire.client.arena", (*HEAVY, "gradwire.server", "rich", "aiohttp")),
        ("gradwire.client.arctic", (*HEAVY, "gradwire.server", "uvicorn", "protovalidate")),
    ],
)
def test_importing_brings_nothing_heavy_along(module: str, unwanted: tuple[str, ...]) -> None:
    program = f"import {module}, sys; print(*(name for name in {unwanted!r} if name in sys.modules))"
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert found.stdout.split() == []
