"""Actions of deployed policies: latency beside the real agilerl-arena client, throughput beside bare ONNX Runtime.

python -m benchmarks.policies [--rounds 5] [--calls 400]

Needs `make agilerl` for the first. The policies are small networks: what is measured is the way to them.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from benchmarks.bundles import write_bundles
from benchmarks.child import Child
from benchmarks.report import Row, compared, parser_of, publish
from benchmarks.server import Server, running_server
from gradwire.client import Client
from gradwire.server.engines.policy.engine import PolicyEngine

PEER = Path(__file__).resolve().parent.parent / ".venv-agilerl" / "bin" / "python"
BATCH = 64
KEEPING = {"MALLOC_TRIM_THRESHOLD_": "134217728", "MALLOC_MMAP_THRESHOLD_": "33554432"}
"""Tells glibc to use the memory of large messages again; the server does so by itself."""


def latency(arguments: argparse.Namespace, root: Path) -> list[Row]:
    """p50 of `get_action`: `Agent` over gRPC, and agilerl-arena's over our HTTP door, taking turns."""
    environment = {"GRADWIRE_HTTP": "127.0.0.1:0", "GRADWIRE_BUNDLE_ROOT": str(root)}
    few = max(5, arguments.calls // 16)
    with running_server(**environment) as server:
        with Client(server.address) as client:
            for name in ("vector", "image"):
                client.deployments.deploy_policy(name, name)
        return [
            _turns(server, arguments.rounds, "vector", arguments.calls, "get_action, 32 bytes, p50", 1 / 0.6),
            _turns(server, arguments.rounds, "image", few, "get_action, 64 images, 1.8 MB, p50", 1 / 0.2),
            _turns(server, arguments.rounds, "image", few, "the same, both clients keep freed memory", None, **KEEPING),
        ]


def _turns(
    server: Server, rounds: int, name: str, calls: int, title: str, required: float | None, **environment: str
) -> Row:
    taken: dict[str, list[float]] = {"grpc": [], "http": []}
    with (
        Child("policy_caller", "grpc", server.address, environment=environment) as ours,
        Child("policy_caller", "http", server.http, environment=environment, python=str(PEER)) as peer,
    ):
        for each in range(rounds + 1):
            found = {side: child.call(name=name, calls=calls) for side, child in (("grpc", ours), ("http", peer))}
            assert found["grpc"]["action"] == found["http"]["action"], "the two sides chose other actions"
            if each:  # the first warms up
                for side, answer in found.items():
                    taken[side].append(1000 * statistics.median(answer["seconds"]))
    return compared(
        title,
        taken["grpc"],
        taken["http"],
        "ms",
        more_is_better=False,
        required=required,
        reference_name="agilerl-arena, our HTTP door",
    )


async def throughput(arguments: argparse.Namespace, root: Path) -> list[Row]:
    """Observations per second in batches of 64, in this process: the engine, and ONNX Runtime's `run` alone."""
    batch = np.random.default_rng(0).normal(size=(BATCH, 8)).astype(np.float32)
    rows = []
    for name, what, required in (("wide", "2 x 256", 0.8), ("vector", "2 x 64", None)):
        engine = await PolicyEngine.load(root / name)
        session = _bare(root / name / "policy.onnx")
        ours: list[float] = []
        bare: list[float] = []
        for each in range(arguments.rounds + 1):
            began = time.perf_counter()
            for _ in range(arguments.calls):
                await engine.act(batch, batched=True)
            between = time.perf_counter()
            for _ in range(arguments.calls):
                session.run(None, {"obs": batch})
            ended = time.perf_counter()
            if each:
                ours.append(BATCH * arguments.calls / (between - began))
                bare.append(BATCH * arguments.calls / (ended - between))
        await engine.close()
        title = f"policy of {what}, batches of {BATCH}"
        against = "bare ONNX Runtime"
        rows.append(
            compared(title, ours, bare, "obs/s", more_is_better=True, required=required, reference_name=against)
        )
    return rows


def _bare(file: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # as the engine has it
    return onnxruntime.InferenceSession(str(file), options)


def main() -> None:
    """Command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--calls", type=int, default=400, help="of a round; a sixteenth with images (%(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gradwire-bench-") as folder:
        root = Path(folder)
        write_bundles(root)
        rows = latency(arguments, root) if PEER.exists() else [Row("get_action, p50", "not measured: make agilerl")]
        rows += uvloop.run(throughput(arguments, root))
    publish(rows, arguments.json)


if __name__ == "__main__":
    main()
