"""Worked cases of losses: a JSON file of inputs and of the loss and gradient that must come out.

    {"cases": [{"config": {"loss": NAME, KEY: VALUE, ...}, "input_ids": [B, S], "loss_mask": [B, S],
                "logits": [B, S, V], "loss": NUMBER, "grad_logits": [B, S, V]}, ...]}

A case may also have "attention_mask" (default: all real), "advantages", "old_log_probs_shifted",
"prox_logp_shifted", "ref_log_probs_shifted", "versions" (all [B, S]) and "prompt_group_ids" [B]; null is the same as
absent. All on the shifted grid: entry i scores token i + 1. Everything is computed in float64, as a job computes it:
checked, prepared and aggregated by the same code, but for the model, whose logits are given. Policies may be
made up, too: their log-probs may be above 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gradwire.server.engines.training import TrainingBatch
from gradwire.server.errors import GradwireError, InvalidArgument
from gradwire.server.losses.config import LossConfig
from gradwire.server.losses.family import GrpoConfig
from gradwire.server.losses.names import COLUMNS, did_you_mean
from gradwire.server.losses.prepare import prepare_batch
from gradwire.server.losses.registry import resolve_loss

if TYPE_CHECKING:
    from torch import Tensor

    from gradwire.server.losses.inputs import LossOutput

Doubles = npt.NDArray[np.float64]

KEY_OF = {column: key for key, column in COLUMNS.items()}
"""Column of the engine's batch -> its key in a case, which is its name in a request, too."""

REQUIRED = ("config", "input_ids", "loss_mask", "logits", "loss", "grad_logits")
KEYS = (*REQUIRED, "attention_mask", *COLUMNS, "prompt_group_ids")


class CaseError(ValueError):
    """A file, or a case in it, that is not of the format; the text says where and what would be right."""


@dataclass(frozen=True, slots=True)
class LossCase:
    """One case; arrays as in the file."""

    loss: str
    options: Mapping[str, Any]
    input_ids: npt.NDArray[np.int64]
    real: npt.NDArray[np.bool_]
    mask: Doubles
    columns: Mapping[str, Doubles]
    prompt_group_ids: npt.NDArray[np.int64] | None
    logits: Doubles
    expected_loss: float
    expected_gradient: Doubles

    @property
    def title(self) -> str:
        """The loss with its options."""
        return " ".join([self.loss, *(f"{key}={value}" for key, value in self.options.items())])


def read_cases(path: Path) -> list[LossCase]:
    """Raises CaseError for what is not of the format, OSError for a file that cannot be read."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CaseError(f"is not JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("cases"), list) or not document["cases"]:
        raise CaseError('must be an object with a list "cases" that holds at least one case')
    return [parse_case(case, f"cases[{index}]") for index, case in enumerate(document["cases"])]


def parse_case(case: Any, where: str = "case") -> LossCase:
    """One case. Raises CaseError."""
    if not isinstance(case, dict):
        raise CaseError(f"{where} must be an object, is {type(case).__name__}")
    for key in case:
        if key not in KEYS:
            raise CaseError(f"{where}.{key}: unknown key.{did_you_mean(key, KEYS)} Keys: {', '.join(KEYS)}")
    given = {key: value for key, value in case.items() if value is not None}
    for key in REQUIRED:
        if key not in given:
            raise CaseError(f"{where}.{key} is missing")
    config = given["config"]
    if not isinstance(config, dict) or not isinstance(config.get("loss"), str):
        raise CaseError(f'{where}.config must be an object whose "loss" names the loss')
    ids = _array(given, "input_ids", where, np.int64, (None, None))
    grid = ids.shape
    logits = _array(given, "logits", where, np.float64, (*grid, None))
    real = _array(given, "attention_mask", where, np.bool_, grid) if "attention_mask" in given else np.ones(grid, bool)
    groups = given.get("prompt_group_ids")
    return LossCase(
        loss=config["loss"],
        options={key: value for key, value in config.items() if key != "loss"},
        input_ids=ids,
        real=real,
        mask=_array(given, "loss_mask", where, np.float64, grid),
        columns={
            column: _array(given, key, where, np.float64, grid) for key, column in COLUMNS.items() if key in given
        },
        prompt_group_ids=None if groups is None else _array(given, "prompt_group_ids", where, np.int64, grid[:1]),
        logits=logits,
        expected_loss=float(_array(given, "loss", where, np.float64, ())),
        expected_gradient=_array(given, "grad_logits", where, np.float64, logits.shape),
    )


def refusal(error: GradwireError) -> str:
    """What is wrong with a case that a job would refuse, by the names of the case's keys."""
    if not isinstance(error, InvalidArgument):
        return error.message
    said = []
    for violation in error.violations:
        name = violation.field.removeprefix("batch.")
        said.append(f"{KEY_OF.get(name, name)}: {violation.description}")
    return "; ".join(said)


def evaluate(case: LossCase) -> tuple[float, Doubles]:
    """The loss and its gradient by the logits [B, S, V]. Raises InvalidArgument where a job would."""
    import torch

    from gradwire.server.losses.compute import gradient_of, refuse_nan

    logits = torch.from_numpy(case.logits.copy()).requires_grad_()
    (output,) = loss_of_parts(case, logits, [range(len(case.input_ids))])
    loss = resolve_loss(case.loss)
    gradient = gradient_of(loss, output, logits)
    refuse_nan(loss, output)
    return float(output.loss.detach()), gradient.numpy()


def loss_of_parts(case: LossCase, logits: Tensor, parts: Sequence[Sequence[int]]) -> list[LossOutput]:
    """The summands of the loss of each part of the rows, as micro-batches of any split give them.

    `logits` [B, S, V] stand for the case's own, in the dtype to compute in.
    """
    import torch

    from gradwire.server.losses.compute import compute_loss, load_loss
    from gradwire.server.losses.inputs import LossInputs

    loss = resolve_loss(case.loss, path="config.loss")
    config = _checked(loss.parse(case.options, path="config"))
    prepared = prepare_batch(batch_of(case), loss, config, made_up=True)
    row, entry = np.nonzero(case.real)  # of each flat position
    scores = torch.log_softmax(logits / config.temperature, -1)
    entropies = -(scores.exp() * scores).sum(-1)
    labels = torch.from_numpy(np.roll(case.input_ids, -1, axis=-1))
    log_probs = scores.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    function = load_loss(loss)
    outputs = []
    for rows in parts:
        numbers = {number: index for index, number in enumerate(rows)}
        scored = np.flatnonzero((prepared.mask != 0) & np.isin(row, list(rows)))
        if not len(scored):
            continue
        at = torch.from_numpy(row[scored]), torch.from_numpy(entry[scored])
        inputs = LossInputs(
            log_probs=log_probs[at],
            entropy=entropies[at],
            mask=torch.from_numpy(prepared.mask[scored]).to(logits.dtype),
            rows=torch.tensor([numbers[number] for number in row[scored]]),
            num_rows=len(rows),
            row_ids=torch.tensor(list(rows)),
            **{
                name: torch.from_numpy(column[scored]).to(logits.dtype)
                for name, column in prepared.batch.columns.items()
            },
        )
        outputs.append(compute_loss(loss, function, inputs, config, prepared.whole))
    return outputs


def batch_of(case: LossCase) -> TrainingBatch:
    """The case's rows without padding; columns stay float64, so that nothing is rounded."""
    lengths = case.real.sum(axis=1)
    mask: Any = case.mask[case.real]
    columns: Any = {name: column[case.real] for name, column in case.columns.items()}
    return TrainingBatch(
        input_ids=case.input_ids[case.real].astype(np.int32),
        row_offsets=np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        row_width=case.input_ids.shape[1],
        loss_mask=mask,
        columns=columns,
        prompt_group_ids=case.prompt_group_ids,
    )


def _checked(config: LossConfig) -> LossConfig:
    if isinstance(config, GrpoConfig) and config.uses_versions and config.current_version is None:
        raise InvalidArgument.at("config.current_version", "is needed here: no job is there whose version it could be")
    return config


def _array(case: Mapping[str, Any], key: str, where: str, dtype: Any, shape: tuple[int | None, ...]) -> Any:
    """An array of a shape; None stands for any length above 0."""
    try:
        array = np.array(case[key], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise CaseError(f"{where}.{key} is no array of numbers: {error}") from None
    fits = array.ndim == len(shape) and all(
        have == want if want is not None else have > 0 for have, want in zip(array.shape, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("?" if want is None else str(want) for want in shape)
        raise CaseError(f"{where}.{key} has shape {list(array.shape)}; it takes [{wanted}]")
    if not np.isfinite(array).all():
        raise CaseError(f"{where}.{key} holds a number that is not finite")
    if dtype is not np.float64 and not np.array_equal(array.astype(dtype), array):
        raise CaseError(f"{where}.{key} holds numbers that are no {np.dtype(dtype).name}")
    return array.astype(dtype)
