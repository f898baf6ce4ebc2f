"""Writes a torch network as ONNX, and records what it answers to random observations.

Knows: torch's exporter, names of inputs and outputs. Does not know: where the network came from.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from gradwire.server.convert.describe import describe, leaves, rebuild, sample_rows

ROWS = 7  # of the samples
_OPSET = 17


@dataclass(frozen=True)
class Graph:
    """One network of a bundle, still in torch."""

    module: torch.nn.Module
    """Owns the weights."""
    forward: Callable[[Any, dict[str, torch.Tensor]], Mapping[str, torch.Tensor]]
    """From the observation and the states, batch first, to outputs by their names, `next_state.NAME` among them."""
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any] | None = None
    head: str | None = None
    outputs: tuple[str, ...] = ()
    states: Mapping[str, Any] = field(default_factory=dict)
    """Initial value of each, of one row."""
    normalization: Mapping[str, Any] = field(default_factory=dict)


class _Flat(torch.nn.Module):
    """The graph as a function of tensors, which is what an exporter takes."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.module = graph.module
        self._graph = graph
        self.names: list[str] = []

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        flat = iter(inputs)
        observation = rebuild(self._graph.observation_space, flat)
        found = self._graph.forward(observation, dict(zip(self._graph.states, flat, strict=True)))
        self.names = list(found)
        return tuple(found.values())


def export(graph: Graph, folder: Path, samples: Path, name: str) -> dict[str, Any]:
    """Writes NAME.onnx and NAME.npz; the network's part of the manifest."""
    flat = _Flat(graph).eval().requires_grad_(False)
    names = [leaf for leaf, _ in leaves(graph.observation_space)] + [f"state.{state}" for state in graph.states]
    arrays = _samples(graph)
    tensors = tuple(torch.as_tensor(array) for array in arrays)
    with torch.no_grad():
        outputs = [output.numpy() for output in flat(*tensors)]
        path = folder / f"{name}.onnx"
        _write(flat, tensors, path, names, list(flat.names))
    recorded = {f"input:{key}": array for key, array in zip(names, arrays, strict=True)}
    recorded |= {f"output:{key}": array for key, array in zip(flat.names, outputs, strict=True)}
    np.savez(samples / f"{name}.npz", allow_pickle=False, **recorded)
    return {
        "file": path.name,
        "observation_space": describe(graph.observation_space),
        "action_space": None if graph.action_space is None else describe(graph.action_space),
        "head": graph.head,
        "outputs": list(graph.outputs),
        "states": {key: _state(np.asarray(value)) for key, value in graph.states.items()},
        "normalization": dict(graph.normalization),
    }


def _samples(graph: Graph) -> list[Any]:
    rng = np.random.default_rng(0)
    arrays = sample_rows(graph.observation_space, ROWS)
    for initial in graph.states.values():
        row = np.asarray(initial, np.float32)
        arrays.append((row + rng.normal(size=(ROWS, *row.shape))).astype(np.float32))
    return arrays


def _state(initial: Any) -> dict[str, Any]:
    values = initial.astype(float).ravel().tolist()
    return {"shape": list(initial.shape), "initial": values[0] if len(set(values)) == 1 else values}


def _write(flat: _Flat, tensors: tuple[torch.Tensor, ...], path: Path, names: list[str], outputs: list[str]) -> None:
    with warnings.catch_warnings():
        # Tracing warns of every shape that becomes a constant; the comparison with the source finds those that matter.
        warnings.simplefilter("ignore")
        options: dict[str, Any] = {}
        if "dynamo" in inspect.signature(torch.onnx.export).parameters:
            options["dynamo"] = (
                False  # the other exporter needs onnxscript, and fixes batch sizes in recurrent networks
            )
        torch.onnx.export(
            flat,
            tensors,
            str(path),
            input_names=names,
            output_names=outputs,
            dynamic_axes={key: {0: "batch"} for key in [*names, *outputs]},
            opset_version=_OPSET,
            **options,
        )
