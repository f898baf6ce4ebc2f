"""Bundles made on the spot: one linear layer in ONNX for any spaces, and what it gives, in numpy."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from gradwire.server.engines.policy.manifest import HEAD_OUTPUTS, Manifest, Network
from gradwire.server.engines.policy.network import _action_width
from gradwire.server.engines.policy.spaces import Box, Leaf, elements, leaves

Array = npt.NDArray[Any]


def box(*shape: int, low: float | None = None, high: float | None = None, dtype: str = "float32") -> dict[str, Any]:
    return {"type": "Box", "shape": list(shape), "dtype": dtype, "low": low, "high": high}


def discrete(n: int, start: int = 0) -> dict[str, Any]:
    return {"type": "Discrete", "n": n, "start": start}


def network(
    observation: dict[str, Any], head: str | None, action: dict[str, Any] | None, **more: Any
) -> dict[str, Any]:
    return {"file": "policy.onnx", "observation_space": observation, "head": head, "action_space": action, **more}


def weights(spec: Network, seed: int = 0) -> dict[str, tuple[Array, Array]]:
    """Matrix and bias of each output; the same for the same spec and seed."""
    rng = np.random.default_rng(seed)
    # An image's many large numbers would drown all else: its weights are small, and add up to nothing.
    scales = []
    for _, leaf in leaves(spec.observation_space, "obs"):
        image = isinstance(leaf, Box) and leaf.dtype == "uint8"
        scales += [0.001 if image else 0.3] * elements(tuple(leaf.shape))
    scales += [0.3] * sum(elements(state.shape) for state in spec.states.values())
    scale = np.array(scales, np.float32)[:, None]
    sizes = dict.fromkeys(HEAD_OUTPUTS[spec.head], _action_width(spec)) if spec.head else dict.fromkeys(spec.outputs, 3)
    sizes |= {f"next_state.{name}": elements(state.shape) for name, state in spec.states.items()}
    return {
        name: (
            rng.normal(size=(len(scales), size)).astype(np.float32) * scale,
            rng.normal(size=size).astype(np.float32),
        )
        for name, size in sizes.items()
    }


def linear(spec: Network, flat: Mapping[str, Array], seed: int = 0) -> dict[str, Array]:
    """The graph's outputs for its inputs by name, batch first."""
    rows = len(next(iter(flat.values())))
    joined = np.concatenate([np.asarray(array, np.float32).reshape(rows, -1) for array in flat.values()], axis=1)
    found = {name: joined @ matrix + bias for name, (matrix, bias) in weights(spec, seed).items()}
    return {
        name: array.reshape(rows, *spec.states[name.removeprefix("next_state.")].shape)
        if name.startswith("next_state.")
        else array
        for name, array in found.items()
    }


def graph(spec: Network, seed: int = 0) -> bytes:
    """`linear` as an ONNX file."""
    inputs: dict[str, tuple[tuple[int, ...], int]] = {
        name: (tuple(leaf.shape), _element_type(leaf)) for name, leaf in leaves(spec.observation_space, "obs")
    }
    inputs |= {f"state.{name}": (state.shape, TensorProto.FLOAT) for name, state in spec.states.items()}
    nodes, parts = [], []
    for name in inputs:
        nodes.append(helper.make_node("Cast", [name], [f"{name}:float"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Flatten", [f"{name}:float"], [f"{name}:flat"], axis=1))
        parts.append(f"{name}:flat")
    nodes.append(helper.make_node("Concat", parts, ["joined"], axis=1))
    constants, outputs = [], []
    for name, (matrix, bias) in weights(spec, seed).items():
        state = spec.states.get(name.removeprefix("next_state."))
        constants += [numpy_helper.from_array(matrix, f"{name}:w"), numpy_helper.from_array(bias, f"{name}:b")]
        shape = (-1, *state.shape) if state else (-1, len(bias))
        constants.append(numpy_helper.from_array(np.array(shape, np.int64), f"{name}:shape"))
        nodes.append(helper.make_node("Gemm", ["joined", f"{name}:w", f"{name}:b"], [f"{name}:y"]))
        nodes.append(helper.make_node("Reshape", [f"{name}:y", f"{name}:shape"], [name]))
        outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape[1:]]))
    made = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info(name, kind, ["batch", *shape]) for name, (shape, kind) in inputs.items()],
        outputs,
        constants,
    )
    return bytes(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())


def _element_type(leaf: Leaf) -> int:
    name = leaf.dtype if isinstance(leaf, Box) else "int64"
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(name)))


def write(
    folder: Path, networks: dict[str, dict[str, Any]], *, files: Mapping[str, bytes] | None = None, **fields: Any
) -> Path:
    """A bundle of linear networks (or of `files`), network i with seed i; the folder."""
    made = dict(files or {})
    parsed: dict[str, Any] = {}
    for seed, (name, spec) in enumerate(networks.items()):
        parsed[name] = {**spec, "file": f"{name}.onnx"}
        if f"{name}.onnx" not in made:
            made[f"{name}.onnx"] = graph(Network.model_validate_json(json.dumps(parsed[name])), seed)
    kind = "supervised" if all(spec.get("head") is None for spec in networks.values()) else "rl_policy"
    manifest = {
        "format": "gradwire-policy",
        "version": 1,
        "kind": kind,
        "files": {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in made.items()
        },
        "networks": parsed,
        **fields,
    }
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for name, data in made.items():
        (folder / name).write_bytes(data)
    return folder


def spec_of(manifest: Manifest, name: str = "policy") -> Network:
    return manifest.networks[name]
