"""The stubs in gen/ are what scripts/gen.sh makes of protos/, and run with every grpcio and protobuf we say they do.

Generated code checks its runtime's version when it is imported, so a stub from too new a generator breaks the
users who have the oldest versions that pyproject.toml admits.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GEN = ROOT / "gen"


def _stubs(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def floors() -> dict[str, str]:
    """The lowest version of each base dependency."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pairs = (re.fullmatch(r"([\w-]+)>=([\d.]+)", requirement) for requirement in project["dependencies"])
    return {pair[1]: pair[2] for pair in pairs if pair is not None}


def test_generating_again_changes_nothing(tmp_path: Path) -> None:
    subprocess.run([ROOT / "scripts" / "gen.sh", tmp_path], check=True, timeout=240)
    again, committed = _stubs(tmp_path), _stubs(GEN)
    assert again.keys() == committed.keys(), "run make gen"
    assert [name for name in again if again[name] != committed[name]] == [], "run make gen"


def test_messages_run_with_the_oldest_protobuf_we_admit(floors: dict[str, str]) -> None:
    versions = {
        ".".join(found.groups())
        for path in GEN.rglob("*_pb2.py")
        if (found := re.search(r"Domain\.PUBLIC,\s*(\d+),\s*(\d+),\s*(\d+),", path.read_text()))
    }
    assert versions == {floors["protobuf"]}


def test_services_run_with_the_oldest_grpcio_we_admit(floors: dict[str, str]) -> None:
    versions = {
        found[1]
        for path in GEN.rglob("*_pb2_grpc.py")
        if (found := re.search(r"^GRPC_GENERATED_VERSION = '([\d.]+)'", path.read_text(), re.MULTILINE))
    }
    assert versions == {floors["grpcio"]}


def test_companions_of_grpcio_have_its_floor(floors: dict[str, str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    companions = [requirement for requirement in extras["server"] if requirement.startswith("grpcio-")]
    assert companions, "the server has health and reflection"
    assert {requirement.split(">=")[1] for requirement in companions} == {floors["grpcio"]}


def test_gradwire_is_a_namespace_in_each_of_its_folders() -> None:
    for root in ("gen", "client_py", "server"):
        assert not (ROOT / root / "gradwire" / "__init__.py").exists()


def test_a_client_imports_every_stub_without_the_servers_packages() -> None:
    # In its own process, where importing what only the server installs fails.
    script = (
        "import importlib, sys\n"
        "for name in ('protovalidate', 'protobuf', 'torch', 'vllm', 'deepspeed'): sys.modules[name] = None\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
    )
    modules = [str(path.relative_to(GEN).with_suffix("")).replace("/", ".") for path in GEN.rglob("*_pb2*.py")]
    assert "buf.validate.validate_pb2" in modules
    subprocess.run([sys.executable, "-c", script, *modules], check=True, timeout=60)


def test_the_rules_in_the_protos_reach_protovalidate() -> None:
    protovalidate = pytest.importorskip("protovalidate")
    from gradwire.v1 import tensor_pb2

    with pytest.raises(protovalidate.ValidationError) as caught:
        protovalidate.validate(tensor_pb2.SharedMemory(name="no prefix"))
    assert [violation.proto.rule_id for violation in caught.value.violations] == ["string.pattern"]
