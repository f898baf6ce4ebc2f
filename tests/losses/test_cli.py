"""`gradwire losses`: what it lists, what it proves, and what it says of files that it cannot use."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwire.server.cli import main
from tests.losses.grid import CASES
from tests.losses.plugin import install_plugin

HERE = Path(__file__).parent


def written(folder: Path, document: Any) -> str:
    path = folder / "cases.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def changed(**changes: Any) -> dict[str, Any]:
    return {"cases": [{**copy.deepcopy(CASES[0]), **changes}]}


@pytest.mark.parametrize("file", ["reference.json", "options.json"])
def test_all_worked_cases_agree(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["losses", "check", str(HERE / file)]) == 0
    *lines, summary = capsys.readouterr().out.splitlines()
    assert all(line.startswith(f"ok   cases[{index}] ") for index, line in enumerate(lines))
    assert summary == f"{len(lines)} of {len(lines)} cases agree to 1e-09"


def test_the_case_in_the_documentation_agrees(tmp_path: Path) -> None:
    page = (HERE.parents[1] / "docs" / "own_losses.md").read_text()
    (case,) = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert main(["losses", "check", written(tmp_path, case)]) == 0


def test_a_miss_is_told_with_both_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, changed(loss=CASES[0]["loss"] + 1e-6))
    assert main(["losses", "check", path]) == 1
    out = capsys.readouterr().out
    assert "MISS cases[0] grpo eps_clip=0.2: loss is -0.12425677204" in out
    assert "the case says -0.1242557720" in out
    assert "0 of 1 cases agree" in out
    assert main(["losses", "check", path, "--tolerance", "1e-5"]) == 0


def test_a_wrong_gradient_is_told_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gradient = copy.deepcopy(CASES[0]["grad_logits"])
    gradient[2][1][3] += 0.5
    assert main(["losses", "check", written(tmp_path, changed(grad_logits=gradient))]) == 1
    assert "the loss agrees, but its gradient by logits[2, 1, 3] is" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ("{", "is not JSON"),
        ([], 'an object with a list "cases"'),
        ({"cases": []}, "at least one case"),
        ({"cases": [3]}, "cases[0] must be an object, is int"),
        (changed(advantage=[1]), "cases[0].advantage: unknown key. Did you mean 'advantages'?"),
        (changed(logits=None), "cases[0].logits is missing"),
        (changed(config={"eps_clip": 0.2}), 'cases[0].config must be an object whose "loss" names the loss'),
        (changed(loss_mask=[[1, 0]]), "cases[0].loss_mask has shape [1, 2]; it takes [4, 6]"),
        (changed(logits=[[[1.0]]]), "cases[0].logits has shape [1, 1, 1]; it takes [4, 6, ?]"),
        (changed(input_ids=[[0.5] * 6] * 4), "cases[0].input_ids holds numbers that are no int64"),
        (changed(loss=float("nan")), "cases[0].loss holds a number that is not finite"),
        (changed(advantages=[["x"]]), "cases[0].advantages is no array of numbers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_files_that_are_not_of_the_format(
    document: Any, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["losses", "check", written(tmp_path, document)]) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert not captured.out


def test_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["losses", "check", "/nowhere/cases.json"]) == 2
    assert "/nowhere/cases.json: No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"loss": "grpp"}, "config.loss: no loss 'grpp'. Did you mean 'grpo'?"),
        ({"loss": "grpo", "epsclip": 1}, "config.epsclip: unknown key. Did you mean 'eps_clip'?"),
        ({"loss": "grpo", "loss_agg_mode": "prompt-mean"}, ": prompt_group_ids: "),
        ({"loss": "grpo", "prox_logp_method": "metrics"}, "config.current_version: is needed here"),
    ],
    ids=str,
)
def test_a_case_that_a_job_would_refuse_is_a_miss(
    config: dict[str, Any], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["losses", "check", written(tmp_path, changed(config=config))]) == 1
    assert says in capsys.readouterr().out


def test_the_list_gives_names_aliases_options_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["losses", "list"]) == 0
    out = capsys.readouterr().out
    assert "grpo: PPO's clip on group advantages (arXiv 1707.06347, 2402.03300)" in out
    assert "also as: arctic_platform.rl.processors.grpo_loss" in out
    assert "eps_clip=0.0003" in out  # gspo's own default
    assert "needs: ref_log_probs_shifted, rows in groups of 2" in out
    assert "needs: old_log_probs_shifted\n" in out  # sapo
    assert "needs: advantages" not in out  # missing ones are 1


def test_for_programs_all_is_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["losses", "list", "--json"]) == 0
    losses = {loss.pop("name"): loss for loss in json.loads(capsys.readouterr().out)}
    assert "arctic_platform.rl.processors.grpo_loss" in losses["grpo"]["aliases"]
    assert losses["gspo"]["options"]["eps_clip"] == 0.0003 and losses["gspo"]["options"]["c_clip"] is None
    assert losses["dpo"]["needs"] == ["ref_log_probs_shifted", "rows in groups of 2"]
    document = {"cases": [CASES[0], *changed(loss=3.0)["cases"], *changed(config={"loss": "grpp"})["cases"]]}
    assert main(["losses", "check", written(tmp_path, document), "--json"]) == 1
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["num_agree"], found["tolerance"], err) == (1, 1e-9, "")
    right, wrong, refused = found["cases"]
    assert right["agrees"] and right["loss"] == pytest.approx(CASES[0]["loss"]) and right["loss_difference"] < 1e-9
    assert not wrong["agrees"] and wrong["loss_difference"] == pytest.approx(3.0 - CASES[0]["loss"])
    assert not refused["agrees"] and refused["loss"] is None and "Did you mean 'grpo'?" in refused["message"]
    assert main(["losses", "check", written(tmp_path, "{"), "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "cases.json: is not JSON" in json.loads(err)["error"]["message"]


def test_an_installed_loss_is_listed_and_checked(tmp_path: Path) -> None:
    lp = np.log(np.full(2, 0.5))
    # Logits of 0 over two tokens: lp = log(1/2) everywhere; d lp / d logits is onehot - 1/2.
    slope = 2 * (lp + 3.0) / 2
    gradient = [[[slope[0] / 2, -slope[0] / 2], [-slope[1] / 2, slope[1] / 2], [0.0, 0.0]]]
    case = {
        "config": {"loss": "square", "target": -3.0},
        "input_ids": [[1, 0, 1]],
        "loss_mask": [[1, 1, 0]],
        "logits": np.zeros((1, 3, 2)).tolist(),
        "loss": float(np.square(lp + 3.0).mean()),
        "grad_logits": gradient,
    }
    path = os.pathsep.join([str(install_plugin(tmp_path)), os.environ.get("PYTHONPATH", "")])

    def gradwire(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gradwire.server", "losses", *words]
        return subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
        )

    assert "square: (lp - target)^2 (nowhere)" in gradwire("list").stdout
    checked = gradwire("check", written(tmp_path, {"cases": [case]}))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert checked.stdout.startswith("ok   cases[0] square target=-3.0")


def test_the_loss_in_the_documentation_can_be_installed(tmp_path: Path) -> None:
    page = (HERE.parents[1] / "docs" / "own_losses.md").read_text()
    (module,) = re.findall(r"^```python\n([^`]*LossConfig.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (project,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "my_losses.py").write_text(module)
    (entry,) = tomllib.loads(project)["project"]["entry-points"]["gradwire.losses"].items()
    metadata = tmp_path / "my_losses-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-losses\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[gradwire.losses]\n" + " = ".join(entry) + "\n")
    case = {  # L = 6 log 2 at both tokens; d lp / d logits is onehot - 1/2
        "config": {"loss": "reinforce", "scale": 2.0},
        "input_ids": [[1, 0, 1]],
        "loss_mask": [[1, 1, 0]],
        "advantages": [[3, 3, 0]],
        "logits": np.zeros((1, 3, 2)).tolist(),
        "loss": 6 * float(np.log(2)),
        "grad_logits": [[[-1.5, 1.5], [1.5, -1.5], [0, 0]]],
    }
    lacking = {key: value for key, value in case.items() if key != "advantages"}
    done = subprocess.run(
        [sys.executable, "-m", "gradwire.server", "losses", "check", written(tmp_path, {"cases": [case, lacking]})],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
    )
    first, second, _ = done.stdout.splitlines()
    assert first.startswith("ok   cases[0] reinforce scale=2.0"), done.stdout + done.stderr
    assert second.endswith("reinforce scale=2.0: advantages: the loss 'reinforce' needs this column")


def test_a_reader_that_has_had_enough_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "gradwire.server", "losses", "list"], stdout=writing, stderr=subprocess.PIPE, timeout=60
    )
    os.close(writing)
    assert done.returncode == 141
    assert done.stderr == b""
