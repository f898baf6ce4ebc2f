"""Manifests against a model's folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gradwire.server.engines.manifest import ITEM_SIZES, check_manifest, folder_shapes
from gradwire.server.engines.weights import TensorSpec, WeightManifest
from gradwire.server.errors import InvalidArgument
from gradwire.server.models.resolve import resolve_model

SHAPES = {"a.weight": (2, 3), "b.weight": (4,)}


def manifest(**changes: Any) -> WeightManifest:
    """A fitting one, with the first tensor changed."""
    first = replace(TensorSpec("a.weight", "F32", (2, 3), 0, 24), **changes)
    return WeightManifest((first, TensorSpec("b.weight", "BF16", (4,), 64, 8)), 72)


def test_one_that_fits() -> None:
    check_manifest(manifest(), SHAPES)
    check_manifest(manifest(dtype="F16", nbytes=12), SHAPES)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": "c.weight"}, "no such tensor"),
        ({"name": "b.weight"}, "no|shape|twice"),
        ({"shape": (3, 2)}, r"shape \[3, 2\], but the model's is \[2, 3\]"),
        ({"shape": (6,)}, "shape"),
        ({"dtype": "I8"}, "one of F32, BF16, F16"),
        ({"nbytes": 12}, "make 24"),
        ({"nbytes": 1 << 62}, "make 24"),
        ({"offset": 60}, "outside the segment"),
        ({"offset": -4}, "outside the segment"),
        ({"offset": 2}, "multiple of its item size"),
    ],
)
def test_one_that_does_not(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text) as caught:
        check_manifest(manifest(**changes), SHAPES)
    assert caught.value.violations[0].field == "manifest[0]"
    assert caught.value.reason == "MANIFEST_MISMATCH"


def test_missing_and_repeated_tensors() -> None:
    with pytest.raises(InvalidArgument, match=r"b\.weight is missing"):
        check_manifest(WeightManifest(manifest().tensors[:1], 72), SHAPES)
    with pytest.raises(InvalidArgument, match="comes twice"):
        check_manifest(WeightManifest((*manifest().tensors, manifest().tensors[0]), 72), SHAPES)


def test_no_more_violations_than_a_reader_can_use() -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_manifest(WeightManifest((), 0), {f"layer.{number}": (1,) for number in range(500)})
    assert len(caught.value.violations) == 20


@pytest.mark.parametrize(("name", "tensors"), [("tiny", 20), ("tiny-untied", 21)])
def test_folders(name: str, tensors: int) -> None:
    shapes = folder_shapes(Path(resolve_model(name)))
    assert len(shapes) == tensors and ("lm_head.weight" in shapes) == (name == "tiny-untied")
    assert shapes["model.embed_tokens.weight"] == (260, 192)
    assert ITEM_SIZES["F32"] == 4
