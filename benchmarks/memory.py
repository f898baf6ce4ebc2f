"""Peak memory of a server of SmolLM2, process by process, after sampling, training and a weight sync.

python -m benchmarks.memory [--prompts 12] [--group 8]
"""

from __future__ import annotations

import argparse

from benchmarks.batch import demo_batch
from benchmarks.report import Row, parser_of, publish
from benchmarks.server import peak_memory, running_server
from gradwire.client import Client, TrainingBatch

SMALL = 50 << 20  # helpers below this are not worth a row
ROUNDS = 2


def measure(arguments: argparse.Namespace) -> list[Row]:
    """A row for each process, and their sum."""
    made = demo_batch(arguments.prompts, arguments.group, 12)
    batch = TrainingBatch(input_ids=made.input_ids, loss_mask=made.loss_mask, advantages=made.advantages)
    questions = [[{"role": "user", "content": f"What is {n} + {n + 1}?"}] for n in range(arguments.prompts)]
    with running_server("smollm2", GRADWIRE_SAMPLER__DTYPE="float32") as server, Client(server.address) as client:
        job = client.jobs.create(training={"optimizer": {"learning_rate": 2e-5}}, timeout=600).training
        for _ in range(ROUNDS):
            client.sampling.generate(questions, n=arguments.group, max_tokens=12, log_probs=0, timeout=600)
            client.training.fwd_bwd(job, batch, loss="grpo", timeout=600)
            client.training.step(job, timeout=600)
            client.weights.sync(job, timeout=600)
        peaks = peak_memory(server.pid)
    rows = [_row(f"peak memory, {role}", size) for role, size in peaks if size >= SMALL]
    return [*rows, _row("peak memory, sum", sum(size for _, size in peaks))]


def _row(what: str, size: int) -> Row:
    return Row(what, f"{size / 2**30:.2f} GiB", details={"bytes": [size]})


def main() -> None:
    """Command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--prompts", type=int, default=12, help="(%(default)s)")
    parser.add_argument("--group", type=int, default=8, help="completions of a prompt (%(default)s)")
    arguments = parser.parse_args()
    publish(measure(arguments), arguments.json)


if __name__ == "__main__":
    main()
