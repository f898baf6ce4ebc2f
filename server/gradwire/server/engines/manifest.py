"""Whether a weight manifest fits the model: names, shapes, dtypes, places in the segment.

What the model has is read from its folder's safetensors headers, so this runs in the front
process, before anything is touched, and at any number of workers.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path

from gradwire.server.engines.weights import TensorSpec, WeightManifest
from gradwire.server.errors import FieldViolation, InvalidArgument

ITEM_SIZES = {"F32": 4, "BF16": 2, "F16": 2}
MAX_VIOLATIONS = 20
_BUFFERS = (".rotary_emb.inv_freq", ".masked_bias", ".attn.bias")  # in old checkpoints; no parameters

PEFT_PREFIX = "base_model.model."
_FACTOR = re.compile(rf"{re.escape(PEFT_PREFIX)}(?P<module>.+)\.lora_(?P<factor>[AB])\.weight")

Shapes = Mapping[str, tuple[int, ...]]


def folder_shapes(folder: Path) -> Shapes:
    """Shape of every parameter of a model folder, by Hugging Face name, tied ones once."""
    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as stream:
            header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        header.pop("__metadata__", None)
        shapes.update({name: tuple(entry["shape"]) for name, entry in header.items()})
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config.get("tie_word_embeddings"):
        shapes.pop("lm_head.weight", None)
    return {name: shape for name, shape in shapes.items() if not name.endswith(_BUFFERS)}


def check_manifest(manifest: WeightManifest, shapes: Shapes) -> None:
    """Raises InvalidArgument with a violation per tensor (the first 20) that does not fit."""
    violations: list[FieldViolation] = []
    seen: set[str] = set()
    for index, tensor in enumerate(manifest.tensors):
        problem = "comes twice" if tensor.name in seen else _problem(tensor, manifest, shapes)
        seen.add(tensor.name)
        if problem:
            violations.append(FieldViolation(f"manifest[{index}]", f"{tensor.name}: {problem}"))
    for name in sorted(set(shapes) - seen):
        violations.append(FieldViolation("manifest", f"{name} is missing; an update carries the whole model"))
    if violations:
        raise InvalidArgument(violations[:MAX_VIOLATIONS], reason="MANIFEST_MISMATCH")


def check_adapter_manifest(manifest: WeightManifest, shapes: Shapes, rank: int) -> None:
    """Raises InvalidArgument with a violation per factor (the first 20) that no weight of the model can take."""
    violations: list[FieldViolation] = []
    names = {tensor.name for tensor in manifest.tensors}
    for index, tensor in enumerate(manifest.tensors):
        place = _FACTOR.fullmatch(tensor.name)
        weight = shapes.get(f"{place['module']}.weight") if place else None
        if place is None or weight is None or len(weight) != 2:
            problem = "the model has no such linear layer"
        else:
            expected = {tensor.name: (rank, weight[1]) if place["factor"] == "A" else (weight[0], rank)}
            problem = _problem(tensor, manifest, expected)
            other = f"{PEFT_PREFIX}{place['module']}.lora_{'B' if place['factor'] == 'A' else 'A'}.weight"
            if not problem and other not in names:
                problem = f"{other} is missing"
        if problem:
            violations.append(FieldViolation(f"manifest[{index}]", f"{tensor.name}: {problem}"))
    if violations:
        raise InvalidArgument(violations[:MAX_VIOLATIONS], reason="MANIFEST_MISMATCH")


def _problem(tensor: TensorSpec, manifest: WeightManifest, shapes: Shapes) -> str:
    """What is wrong with one tensor; empty when nothing is."""
    if tensor.name not in shapes:
        return "the model has no such tensor"
    if tuple(tensor.shape) != shapes[tensor.name]:
        return f"shape {list(tensor.shape)}, but the model's is {list(shapes[tensor.name])}"
    if tensor.dtype not in ITEM_SIZES:
        return f"dtype {tensor.dtype!r}; it must be one of {', '.join(ITEM_SIZES)}"
    expected = math.prod(tensor.shape) * ITEM_SIZES[tensor.dtype]
    if tensor.nbytes != expected:
        return f"{tensor.nbytes} bytes, but its shape and dtype make {expected}"
    if tensor.offset < 0 or tensor.offset + tensor.nbytes > manifest.total_bytes:
        return f"bytes [{tensor.offset}, {tensor.offset + tensor.nbytes}) are outside the segment"
    if tensor.offset % ITEM_SIZES[tensor.dtype]:
        return f"offset {tensor.offset} is not a multiple of its item size"
    return ""
