"""The mark of a model's folder: the same for the same tensors, however they are stored; another for other ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from gradwire.server.engines.deepspeed.model_mark import model_mark

TENSORS: dict[str, npt.NDArray[Any]] = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.arange(4096, dtype=np.float32),
    "empty": np.zeros((0, 4), np.float32),
}


def folder(path: Path, *files: dict[str, npt.NDArray[Any]]) -> Path:
    path.mkdir()
    for number, tensors in enumerate(files):
        save_file(tensors, path / f"{number}.safetensors", metadata={"files": str(len(files))})
    return path


def test_it_is_the_same_in_one_file_and_in_several(tmp_path: Path) -> None:
    apart = [{"b": TENSORS["b"], "empty": TENSORS["empty"]}, {"a": TENSORS["a"]}]
    assert model_mark(folder(tmp_path / "one", TENSORS)) == model_mark(folder(tmp_path / "two", *apart))


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("place", [0, 0.5, -1])
def test_other_numbers_make_another(tmp_path: Path, name: str, place: float) -> None:
    changed = TENSORS[name].copy().reshape(-1)
    changed[int(place * changed.size) if 0 < place < 1 else int(place)] += 1
    other = {**TENSORS, name: changed.reshape(TENSORS[name].shape)}
    assert model_mark(folder(tmp_path / "x", TENSORS)) != model_mark(folder(tmp_path / "y", other))


@pytest.mark.parametrize(
    "other", [{"c": TENSORS["a"]}, {"a": TENSORS["a"].reshape(3, 2)}, {"a": TENSORS["a"].view(np.int32)}]
)
def test_other_names_shapes_and_types_make_another(tmp_path: Path, other: dict[str, npt.NDArray[Any]]) -> None:
    left = folder(tmp_path / "x", {"a": TENSORS["a"]})
    assert model_mark(left) != model_mark(folder(tmp_path / "y", other))
