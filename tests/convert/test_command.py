"""`gradwire policy` from the shell: a conversion in its own process, and what it does with sources that mean harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gradwire.server.cli import main
from gradwire.server.convert import torch_module
from gradwire.server.convert.export import export
from gradwire.server.engines.policy.engine import PolicyEngine

MODEL = """
import torch

class Sum(torch.nn.Module):
    def forward(self, x):
        return {"sum": x["a"] + x["b"], "product": x["a"] * x["b"]}

def make():
    return Sum(), {"a": torch.ones(2, 3), "b": torch.ones(2, 3)}

def spy():
    import os, socket
    print("TOKEN", os.environ.get("SECRET_TOKEN"))
    with open(os.environ["HOME"] + "/x", "w") as file:
        file.write("mine")
    try:
        socket.create_connection(("127.0.0.1", int(open(__file__ + ".port").read())), timeout=2)
        raise SystemExit("convert: REACHED THE NETWORK")
    except OSError:
        raise ValueError(f"no way out, and the token is {os.environ.get('SECRET_TOKEN')}")

def nonsense():
    return 7

class Forgetful(torch.nn.Module):
    def forward(self, obs, states):
        return obs

def forgetful():
    spaces = {"observation_space": None, "action_space": None}
    return {"module": Forgetful(), "head": "q_values", "states": {"h": 0}, **spaces}

def wrong_input():
    return torch.nn.Linear(4, 3), (torch.ones(2, 4),)
"""


def gradwire(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from gradwire.server.cli import main; sys.exit(main())", "policy"]
    environment = {**os.environ, "SECRET_TOKEN": "hush"}
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=120, check=False
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path / "model.py"


async def test_convert_inspect_check_and_serve(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bundles" / "sum.zip"  # whose folder is made
    made = gradwire("convert", f"{source}:make", out)
    assert made.returncode == 0, made.stderr
    assert "runs the code in it" in made.stderr and "largest difference from the source: 0.0e+00" in made.stdout
    assert main(["policy", "inspect", str(out)]) == 0 and '"kind": "supervised"' in capsys.readouterr().out
    assert main(["policy", "check", str(out)]) == 0
    assert capsys.readouterr().out.endswith("outputs sum, product: good\n")
    engine = await PolicyEngine.load(out)
    a, b = np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32)
    found = (await engine.predict({"a": a, "b": b})).outputs
    assert isinstance(found, dict)
    np.testing.assert_array_equal(np.asarray(found["product"]), a * b)
    await engine.close()
    assert main(["policy", "convert", f"{source}:make", str(out)]) == 1
    assert capsys.readouterr().err == f"gradwire policy: {out} exists already\n"
    out.write_bytes(out.read_bytes()[:100])
    assert main(["policy", "check", str(out)]) == 1


def test_for_programs_all_is_json(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def gives(code: int, *words: str) -> Any:
        assert main(["policy", *words, "--json"]) == code
        out, err = capsys.readouterr()
        assert (out if code else err) == ""
        return json.loads(err if code else out)

    out = str(tmp_path / "sum")
    made = gives(0, "convert", f"{source}:make", out)
    assert isinstance(made.pop("isolated"), bool)
    found = {"bundle": out, "kind": "supervised", "algo": "", "networks": ["model"], "max_difference": 0.0}
    assert made == found
    assert gives(0, "inspect", out)["networks"]["model"]["outputs"] == ["sum", "product"]
    (network,) = gives(0, "check", out)["networks"]
    assert (network["name"], network["outputs"], network["head"]) == ("model", ["sum", "product"], None)
    assert network["size_bytes"] == (tmp_path / "sum" / network["file"]).stat().st_size
    assert gives(1, "convert", f"{source}:make", out)["error"]["message"] == f"{out} exists already"
    assert gives(1, "convert", "/nowhere", "x")["error"]["message"] == "/nowhere is not a file"
    assert gives(1, "check", "/nowhere")["error"]["message"] == "nowhere: does not exist"


def test_the_worker_has_no_credentials_and_no_way_out(source: Path, tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        Path(f"{source}.port").write_text(str(listener.getsockname()[1]))
        ran = gradwire("convert", f"{source}:spy", tmp_path / "out")
    if "REACHED THE NETWORK" in ran.stderr:
        pytest.skip("this system lets nobody make a network namespace")
    assert ran.returncode == 1 and "no way out, and the token is None" in ran.stderr
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_converted_says_why(source: Path, tmp_path: Path) -> None:
    assert "must return (module, example inputs)" in gradwire("convert", f"{source}:nonsense", tmp_path / "o").stderr
    gone = gradwire("convert", tmp_path / "none.zip", tmp_path / "o").stderr
    assert "is not a file" in gone and "warning" not in gone  # nothing runs
    assert "name the function" in gradwire("convert", source, tmp_path / "o").stderr
    (tmp_path / "text").write_text("hello")
    assert "neither a Stable-Baselines3 zip nor" in gradwire("convert", tmp_path / "text", tmp_path / "o").stderr


def test_a_module_that_does_not_fit_is_told_how_it_was_called(source: Path) -> None:
    with pytest.raises(ValueError, match=r"Linear\(\(torch.float32\[2, 4\],\)\) raised TypeError"):
        torch_module.load(f"{source}:wrong_input", "")
    with pytest.raises(ValueError, match=r"model.py has no function 'gone'"):
        torch_module.load(f"{source}:gone", "")
    forward = torch_module.load(f"{source}:forgetful", "")[1]["policy"].forward
    with pytest.raises(
        ValueError, match=r"called with \(obs, \{'h': torch.float32\[2, 1\]\}\) and must return \(outputs"
    ):
        forward(torch.ones(2, 1), {"h": torch.ones(2, 1)})


def test_the_modules_of_the_docs_convert(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
    file = tmp_path / "models.py"
    file.write_text(page.split("```python\n")[1].split("```")[0])
    assert torch_module.load(f"{file}:iris", "")[1]["model"].outputs == ("output",)
    made = export(torch_module.load(f"{file}:memory", "")[1]["policy"], tmp_path, tmp_path, "memory")
    assert made["states"]["hidden"]["shape"] == [8] and (tmp_path / made["file"]).exists()
