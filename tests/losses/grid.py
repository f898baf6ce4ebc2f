"""The worked cases, and each as rows of the plain reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.losses.plain import Row

Case = dict[str, Any]

FILES = ("reference.json", "options.json")
CASES: list[Case] = [case for file in FILES for case in json.loads((Path(__file__).parent / file).read_text())["cases"]]


def case_name(case: Case) -> str:
    """A readable test id."""
    extra = "+prox" if case["prox_logp_shifted"] is not None else ""
    return "-".join(f"{key}={value}" if key != "loss" else str(value) for key, value in case["config"].items()) + extra


def split_config(case: Case) -> tuple[str, dict[str, Any]]:
    """Loss name and its options."""
    options = dict(case["config"])
    return options.pop("loss"), options


def plain_rows(case: Case, logits: Tensor) -> list[Row]:
    """The case's rows with log-probs and entropy of these logits [B, S, V]."""
    scores = torch.log_softmax(logits / case["config"].get("temperature", 1.0), -1)
    entropy = -(scores.exp() * scores).sum(-1)
    rows = []
    for r, ids in enumerate(case["input_ids"]):
        labels = [*ids[1:], ids[0]]
        lp = torch.stack([scores[r, i, label] for i, label in enumerate(labels)])

        def of(name: str, r: int = r) -> Any:
            values = case.get(name)
            return None if values is None else values[r]

        rows.append(
            Row(
                lp,
                entropy[r],
                case["loss_mask"][r],
                of("advantages"),
                of("old_log_probs_shifted"),
                of("prox_logp_shifted"),
                of("ref_log_probs_shifted"),
                of("versions"),
                of("prompt_group_ids") or 0,
            )
        )
    return rows
