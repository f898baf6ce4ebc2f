"""What is installed as a loss and is none is told when it is loaded; a slip in one, by `gradwire losses check`."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from gradwire.server.cli import main
from gradwire.server.losses import Loss, LossConfig, registry
from gradwire.server.losses.config import ColumnRules
from gradwire.server.losses.contract import LossPluginError
from tests.losses.grid import CASES
from tests.losses.plugin import SLIPS, install_plugin


def install(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    """Entry points of these values, and a registry that has yet to read them."""
    entries = [EntryPoint(value.rpartition(":")[2], value, "gradwire.losses") for value in values]
    monkeypatch.setattr(registry, "entry_points", lambda *, group: entries)
    monkeypatch.setattr(registry, "_registry", registry._registry.__wrapped__)


def load() -> Any:
    raise AssertionError("a loss is not loaded in the front process")


@dataclass(frozen=True)
class NoDefault(LossConfig):
    wanted: float = 0.0

    def __post_init__(self) -> None:
        raise KeyError("wanted")


@dataclass(frozen=True)
class ListOption(LossConfig):
    weights: list[float] | None = None


class Undecorated(LossConfig):
    scale: float = 1.0


@dataclass(frozen=True)
class Forgetful(LossConfig):
    def problems(self) -> Any:
        LossConfig.problems(self)


@dataclass(frozen=True)
class OddColumns(LossConfig):
    def columns(self) -> ColumnRules:
        rules = LossConfig.columns(self)
        rules.need("this loss", "old_logprobs")
        return rules


NOT_LOSSES = {
    "number": (lambda: 3, "is a int, not a Loss"),
    "absent": (None, "AttributeError"),
    "load": (lambda: Loss("x", LossConfig, "policy"), "its load is a str; it is a function"),  # type: ignore[arg-type]
    "config": (lambda: Loss("x", dict, load), "it is a frozen dataclass that inherits LossConfig"),  # type: ignore[arg-type]
    "undecorated": (lambda: Loss("x", Undecorated, load), "it is a frozen dataclass that inherits LossConfig"),
    "default": (lambda: Loss("x", NoDefault, load), "NoDefault() failed, and every option needs a default: KeyError"),
    "option": (lambda: Loss("x", ListOption, load), "ListOption.weights is of type list[float] | None; an option is"),
    "problems": (lambda: Loss("x", Forgetful, load), "Forgetful.problems() returned None; it returns a list of"),
    "columns": (lambda: Loss("x", OddColumns, load), "'old_logprobs' is no column. Did you mean 'old_log_probs'?"),
    "taken": (lambda: Loss("grpo", LossConfig, load), "would replace the loss 'grpo'"),
}


@pytest.mark.parametrize("name", NOT_LOSSES)
def test_what_is_no_loss_is_told_when_it_is_loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, says = NOT_LOSSES[name]
    if make is not None:
        monkeypatch.setattr(sys.modules[__name__], f"made_{name}", make(), raising=False)
    install(monkeypatch, f"{__name__}:made_{name}")
    with pytest.raises(LossPluginError, match=re.escape(says)) as caught:
        registry.loss_names()
    assert f"entry point 'made_{name}' of group gradwire.losses" in str(caught.value)


def test_a_column_is_named_as_in_a_request_or_as_in_the_inputs() -> None:
    columns = frozenset({"old_log_probs_shifted", "prox_logp_shifted", "versions", "prompt_group_ids"})
    assert Loss("x", LossConfig, load, columns).columns == {
        "old_log_probs", "prox_log_probs", "versions", "prompt_group_ids",
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"'old_logprob' is no column. Did you mean 'old_log_probs'"):
        Loss("x", LossConfig, load, frozenset({"old_logprob"}))


def test_a_slip_is_told_by_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(install_plugin(tmp_path)))
    install(monkeypatch, "square_loss:slip", "square_loss:broken")
    said = {**SLIPS, "raises": "the loss 'broken' failed on this batch: ZeroDivisionError: a fault of the loss"}
    cases = [{**CASES[0], "config": {"loss": "slip", "slip": slip}} for slip in SLIPS]
    cases.append({**CASES[0], "config": {"loss": "broken"}})
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({"cases": cases}))
    assert main(["losses", "check", str(path)]) == 1
    *lines, summary = capsys.readouterr().out.splitlines()
    for line, words in zip(lines, said.values(), strict=True):
        assert line.startswith("MISS ")
        assert re.search(words, line), line
    assert summary.startswith(f"0 of {len(cases)} cases agree")
