"""Seconds of a weight sync of SmolLM2 through gRPC, against one copy of its bytes, and against a detour over a file.

The copy is numpy's, into a buffer that was written before: less than that is not to be had. The detour is
safetensors' save_file of the trainer's weights, load_file, and a copy into place; a real reload of an engine is
slower. Its file stays in the page cache: nothing waits for a disk.

    python -m benchmarks.weight_sync [--rounds 7] [--dtype float32]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.batch import demo_batch
from benchmarks.report import Row, compared, parser_of, publish
from benchmarks.server import running_server
from gradwire.client import Client, Job, TrainingBatch

LR = 2e-5


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Both rows."""
    from gradwire.server.models.resolve import resolve_model

    weights = _weights(resolve_model("smollm2"), arguments.dtype)
    # Once through a flat buffer: what a copy of all bytes costs does not depend on where tensors begin.
    source = np.concatenate([tensor.reshape(-1).view(torch.uint8).numpy() for tensor in weights.values()])
    target, live = source.copy(), {name: tensor.clone() for name, tensor in weights.items()}
    found: dict[str, list[float]] = {"sync": [], "copy": [], "file": []}
    with (
        tempfile.TemporaryDirectory(prefix="gradwire-bench-") as folder,
        running_server("smollm2", GRADWIRE_SAMPLER__DTYPE=arguments.dtype) as server,
        Client(server.address) as client,
    ):
        job = client.jobs.create(training={"optimizer": {"learning_rate": LR}}, timeout=600).training
        client.weights.sync(job, verify=True, timeout=600)  # the first one makes the segment
        for _ in range(arguments.rounds):
            _new_weights(client, job)
            found["sync"].append(_timed_sync(client, job))
            found["copy"].append(_timed_copy(source, target))
            found["file"].append(_timed_detour(weights, live, Path(folder, "weights.safetensors")))
    size = f"{source.nbytes / 1e6:.0f} MB {arguments.dtype}"
    return [
        compared(f"weight sync, {size}", found["sync"], found[kind], "s", more_is_better=False, reference_name=name)
        for kind, name in (("copy", "one memcpy"), ("file", "save, load, copy"))
    ]


def _new_weights(client: Client, job: Job) -> None:
    """A step on two short rows: a sync has to carry something."""
    batch = demo_batch(1, 2, 4)
    rows = TrainingBatch(input_ids=batch.input_ids, loss_mask=batch.loss_mask, advantages=batch.advantages)
    client.training.fwd_bwd(job, rows, loss="grpo", timeout=600)
    client.training.step(job, timeout=600)


def _timed_sync(client: Client, job: Job) -> float:
    begin = time.perf_counter()
    client.weights.sync(job, timeout=600)
    return time.perf_counter() - begin


def _timed_copy(source: npt.NDArray[np.uint8], target: npt.NDArray[np.uint8]) -> float:
    begin = time.perf_counter()
    np.copyto(target, source)
    return time.perf_counter() - begin


def _timed_detour(weights: Mapping[str, torch.Tensor], live: Mapping[str, torch.Tensor], file: Path) -> float:
    from safetensors.torch import load_file, save_file

    begin = time.perf_counter()
    save_file(dict(weights), file)
    for name, tensor in load_file(file).items():
        live[name].copy_(tensor)
    return time.perf_counter() - begin


def _weights(folder: Path, dtype: str) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    kind: torch.dtype = getattr(torch, dtype)
    return {
        name: tensor.to(kind)
        for file in sorted(folder.glob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }


def main() -> None:
    """Command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="(%(default)s)")
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16"], default="float32", help="of the sampler (%(default)s)"
    )
    arguments = parser.parse_args()
    publish(measure(arguments), arguments.json)


if __name__ == "__main__":
    main()
