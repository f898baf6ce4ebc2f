"""Policies that cost next to nothing, as bundles: what is measured is the way to them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ACTIONS = 4
VECTOR: dict[str, Any] = {"type": "Box", "shape": [8], "dtype": "float32", "low": None, "high": None}
"""32 bytes."""
IMAGE: dict[str, Any] = {"type": "Box", "shape": [84, 84, 4], "dtype": "uint8", "low": 0, "high": 255}
"""28 KB; 64 of them are 1.8 MB."""
_STRIDE = 97  # of an image's numbers, so many are looked at once


def write_bundles(root: Path) -> None:
    """MLPs with a choice of four: `vector`, `image`, which sees every 97th number, and `wide`, of SAC's usual size."""
    for name, space, hidden in (("vector", VECTOR, 64), ("image", IMAGE, 64), ("wide", VECTOR, 256)):
        kind = TensorProto.UINT8 if space is IMAGE else TensorProto.FLOAT
        _write(root / name, space, _mlp(space["shape"], kind, hidden))


def _mlp(shape: list[int], kind: int, hidden: int) -> bytes:
    rng, size = np.random.default_rng(0), int(np.prod(shape))
    width, step = (len(range(0, size, _STRIDE)), _STRIDE) if size > _STRIDE else (size, 1)
    nodes = [
        helper.make_node("Flatten", ["obs"], ["flat"], axis=1),
        helper.make_node("Slice", ["flat", "start", "end", "axis", "step"], ["some"]),
        helper.make_node("Cast", ["some"], ["x0"], to=TensorProto.FLOAT),
    ]
    constants = {"start": [0], "end": [size], "axis": [1], "step": [step]}
    initial = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in constants.items()]
    for layer, (rows, columns) in enumerate(((width, hidden), (hidden, hidden), (hidden, ACTIONS))):
        weights = rng.normal(size=(rows, columns)).astype(np.float32) / np.float32(np.sqrt(rows))
        initial.append(numpy_helper.from_array(weights, f"w{layer}"))
        out = "logits" if layer == 2 else f"y{layer}"
        nodes.append(helper.make_node("MatMul", [f"x{layer}", f"w{layer}"], [out]))
        if layer < 2:
            nodes.append(helper.make_node("Tanh", [out], [f"x{layer + 1}"]))
    made = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("obs", kind, ["batch", *shape])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", ACTIONS])],
        initial,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _write(folder: Path, space: dict[str, Any], graph: bytes) -> None:
    network = {
        "file": "policy.onnx",
        "observation_space": space,
        "action_space": {"type": "Discrete", "n": ACTIONS, "start": 0},
        "head": "categorical",
    }
    manifest = {
        "format": "gradwire-policy",
        "version": 1,
        "kind": "rl_policy",
        "algo": "MLP",
        "deterministic": True,
        "files": {"policy.onnx": {"sha256": hashlib.sha256(graph).hexdigest(), "bytes": len(graph)}},
        "networks": {"policy": network},
    }
    folder.mkdir(parents=True)
    (folder / "policy.onnx").write_bytes(graph)
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
