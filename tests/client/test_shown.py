"""What the clients' dataclasses show of themselves: enough to know them by, however much they hold."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from gradwire.client import (
    Completion,
    CreatedJobs,
    FinishReason,
    FwdNoGradResult,
    GenerateResult,
    Job,
    JobKind,
    JobState,
    PromptInfo,
    PromptResult,
    SamplingParams,
    TrainingBatch,
    TrainingJobConfig,
    Usage,
    types,
)
from gradwire.client.types.shown import Brief

SCREEN = 800  # characters: ten lines of a terminal


def ids(count: int) -> Any:
    return np.arange(count, dtype=np.int32)


def generated(prompts: int, n: int, text: str) -> GenerateResult:
    completion = Completion(0, text, ids(512), None, None, (), FinishReason.LENGTH, None)
    result = PromptResult(PromptInfo(ids(30), 0, None, None), (completion,) * n)
    return GenerateResult((result,) * prompts, SamplingParams(n=n, temperature=1.0), Usage(1, 2, 3))


def test_what_is_small_is_shown_whole() -> None:
    assert repr(generated(1, 1, "Hi\n")) == (
        "GenerateResult(results=(PromptResult(prompt=PromptInfo(token_ids=int32[30], num_cached_tokens=0), "
        "completions=(Completion(index=0, text='Hi\\n', token_ids=int32[512], …),)),), "
        "params=SamplingParams(n=1, temperature=1.0), "
        "usage=Usage(prompt_tokens=1, completion_tokens=2, cached_tokens=3))"
    )
    config = TrainingJobConfig(optimizer={"learning_rate": 1e-05}, loss_config={}, packing=False)
    assert repr(config) == "TrainingJobConfig(optimizer={'learning_rate': 1e-05}, loss_config={}, packing=False)"


def test_what_is_large_is_counted() -> None:
    shown = repr(generated(64, 8, "long " * 1000))
    assert len(shown) < SCREEN and "… (5000 characters)" in shown
    assert "… 7 more)" in shown and "… 62 more)" in shown
    rows = [np.zeros(900, np.float32)] * 64
    batch = TrainingBatch(input_ids=[list(range(900))] * 64, loss_mask=np.ones((64, 900)), advantages=rows)
    shown = repr(batch)
    assert len(shown) < SCREEN and "loss_mask=float64[64, 900]" in shown and "versions" not in shown
    assert "7, … 892 more], … 62 more]" in shown and "advantages=[float32[900], float32[900], … 62 more]" in shown
    assert repr(FwdNoGradResult(rows[0], None, 3, 0.1, 0.2)).startswith(
        "FwdNoGradResult(log_probs_shifted=float32[900]"
    )
    moment = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    job = Job(7, JobKind.TRAINING, JobState.READY, "tiny", 0, moment, None, "", TrainingJobConfig(), None, False)
    assert "kind=JobKind.TRAINING" in repr(job) and "created_at=2026-01-02 03:04:05+00:00" in repr(job)
    assert repr(CreatedJobs((job,) * 3)).endswith("state=JobState.READY, …), … 1 more))")


def test_of_torch_as_of_numpy_and_a_list_in_itself_has_an_end() -> None:
    torch = pytest.importorskip("torch")
    circle: list[Any] = [{"message": "x" * 200}]
    circle.append(circle)
    batch = TrainingBatch(input_ids=torch.zeros(2, 3, dtype=torch.int64), versions=circle)
    assert "input_ids=torch.int64[2, 3], versions=[{'message': 'xxx" in repr(batch) and len(repr(batch)) < SCREEN


def test_what_cannot_be_shown_hides_nothing_else() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError

        @property
        def dtype(self) -> str:
            raise OSError  # as a file of arrays says that was closed

    config = TrainingJobConfig(optimizer={Odd(): 10**5000}, loss_config={"a": [Odd()]}, packing=False)  # type: ignore[dict-item]
    odd, number = "<Odd, which cannot be shown: OSError>", "<int, which cannot be shown: ValueError>"
    assert repr(config) == (
        f"TrainingJobConfig(optimizer={{{odd}: {number}}}, loss_config={{'a': [{odd}]}}, packing=False)"
    )
    assert repr(TrainingJobConfig.__new__(TrainingJobConfig)) == "TrainingJobConfig()"


def test_no_result_writes_its_arrays_out() -> None:
    modules = [importlib.import_module(f"{types.__name__}.{at.name}") for at in pkgutil.iter_modules(types.__path__)]
    found = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    found = {value for value in found if dataclasses.is_dataclass(value)}
    assert len(found) > 50
    assert {value for value in found if not issubclass(value, Brief) or "__repr__" in vars(value)} == set()
