"""fwd_bwd and step of the demo's batch through gRPC, against plain DeepSpeed on padded rows, turn by turn.

Both sides train SmolLM2 in float32 with GRPO and AdamW, each in a process of its own, on the same rows from the
same weights; the losses and gradient norms of both must agree.

    python -m benchmarks.training [--prompts 12] [--group 8] [--completion-tokens 12] [--rounds 5]
"""

from __future__ import annotations

import argparse
import math
import sys
import time

from benchmarks.batch import demo_batch
from benchmarks.child import Child
from benchmarks.report import Row, compared, parser_of, publish
from benchmarks.server import OFFLINE, cpu_seconds, running_server
from gradwire.client import Client, TrainingBatch

REQUIRED = 0.9
LR = 2e-5


def measure(arguments: argparse.Namespace) -> list[Row]:
    """The row."""
    from gradwire.server.models.resolve import resolve_model

    folder = str(resolve_model("smollm2", progress=lambda line: print(line, file=sys.stderr)))
    made = demo_batch(arguments.prompts, arguments.group, arguments.completion_tokens)
    sizes = (arguments.prompts, arguments.group, arguments.completion_tokens, arguments.micro_batch)
    with (
        running_server() as server,
        Client(server.address) as client,
        Child("plain_trainer", folder, str(LR), *map(str, sizes), environment=OFFLINE) as plain,
    ):
        job = client.jobs.create(
            training={"model": "smollm2", "optimizer": {"learning_rate": LR, "weight_decay": 0.0}}, timeout=600
        ).training
        times: dict[str, tuple[list[float], list[float]]] = {"seconds": ([], []), "cpu": ([], [])}
        for number in range(arguments.rounds + 1):
            rows = made if number else made.head(arguments.micro_batch)  # the first round warms both sides up
            batch = TrainingBatch(input_ids=rows.input_ids, loss_mask=rows.loss_mask, advantages=rows.advantages)
            begin, cpu = time.perf_counter(), cpu_seconds(server.pid)
            found = client.training.fwd_bwd(job, batch, loss="grpo", timeout=600)
            stepped = client.training.step(job, timeout=600)
            spent = {"seconds": time.perf_counter() - begin, "cpu": cpu_seconds(server.pid) - cpu}
            other = plain.call(rows=len(rows.input_ids))
            _check(number, found.loss, other["loss"], "loss")
            _check(number, stepped.grad_norm, other["grad_norm"], "gradient norm")
            if number:
                for kind, (ours, theirs) in times.items():
                    ours.append(spent[kind])
                    theirs.append(other[kind])
    name = f"fwd_bwd + step, {made.size}"
    wall, cpus = times["seconds"], times["cpu"]
    plain_name = "plain DeepSpeed"
    return [
        compared(name, *wall, "s", more_is_better=False, required=REQUIRED, reference_name=plain_name),
        # Where others use the machine, too, this says more than the wall.
        compared("the same in CPU time", *cpus, "s", more_is_better=False, reference_name=plain_name),
    ]


def _check(number: int, ours: float, theirs: float, what: str) -> None:
    print(f"round {number}: {what} {ours:.6g}, plain {theirs:.6g}", file=sys.stderr)
    if not math.isclose(ours, theirs, rel_tol=0.01, abs_tol=1e-4):
        raise RuntimeError(f"the sides train differently, so their times say nothing: {what} {ours} and {theirs}")


def main() -> None:
    """Command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--prompts", type=int, default=12, help="(%(default)s)")
    parser.add_argument("--group", type=int, default=8, help="completions of a prompt (%(default)s)")
    parser.add_argument("--completion-tokens", type=int, default=12, help="at most (%(default)s)")
    parser.add_argument("--micro-batch", type=int, default=8, help="rows, on the plain side (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    arguments = parser.parse_args()
    publish(measure(arguments), arguments.json)


if __name__ == "__main__":
    main()
