"""Tokens per second of GenerateStream, against the same AsyncLLM without a server.

The server runs in this process, just as `gradwire serve` runs it, so that the very engine behind it can also be
driven in-process, turn by turn. The client is a process of its own. The model is `tiny`, which costs nearly
nothing: what is measured is the path of a token. As many requests are under way as there are streams: where one
ends, the next begins.

    python -m benchmarks.streaming [--streams 1 8 32 64] [--tokens 128] [--equal] [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.child import Child
from benchmarks.report import Row, compared, parser_of, publish
from benchmarks.server import OFFLINE
from gradwire.server.polling import choose_poller

if TYPE_CHECKING:
    from gradwire.server.app import App

PROMPT = "The quick brown fox jumps over the lazy dog. "
REQUIRED = 0.9
CLIENTS = {"aio": "AsyncClient", "stub": "raw stub"}


@dataclass(frozen=True, slots=True)
class Sample:
    """Tokens per second, and CPU seconds per 1,000 tokens: of the front process and of the client's."""

    speed: float
    front_cpu: float
    client_cpu: float = 0.0


def lengths_of(streams: int, tokens: int, repeats: int, *, equal: bool) -> list[list[int]]:
    """Tokens of each request, by stream: from half of `tokens` to one and a half times as many, as they differ in life.

    With `equal` ones all streams of an engine that is driven in-process begin in the same step again and again. A
    server spreads them, and a step that takes up requests costs the engine more than one that does not.
    """
    if equal:
        return [[tokens] * repeats] * streams
    numbers = range(streams * repeats)
    lengths = [tokens // 2 + number * 61 % (tokens + 1) for number in numbers]  # 61: neighbours are far apart
    return [lengths[stream::streams] for stream in range(streams)]


async def in_process(app: App, lengths: Sequence[Sequence[int]]) -> float:
    """Tokens per second of AsyncLLM as its documentation uses it: one delta per token."""
    from vllm.inputs.engine import tokens_input
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    engine: Any = app.jobs.built_in.engine  # type: ignore[union-attr]
    prompt = [int(token) for token in engine.tokenize(PROMPT)]

    async def stream(number: int, tokens: int) -> int:
        params = SamplingParams(
            temperature=1.0, max_tokens=tokens, ignore_eos=True, output_kind=RequestOutputKind.DELTA
        )
        name = f"in-process-{number}-{time.time_ns()}"
        count = 0
        async for output in engine._link.llm.generate(tokens_input(prompt), params, name):
            count += len(output.outputs[0].token_ids)
        return count

    async def one_after_another(number: int) -> int:
        return sum([await stream(number, tokens) for tokens in lengths[number]])

    begin = time.perf_counter()
    count = sum(await asyncio.gather(*map(one_after_another, range(len(lengths)))))
    return count / (time.perf_counter() - begin)


async def measure(arguments: argparse.Namespace) -> list[Row]:
    """All rows."""
    from gradwire.server.app import App
    from gradwire.server.config import load_settings
    from gradwire.server.engines.factory import RealEngines
    from gradwire.server.observability.heap import frozen_heap

    rows = []
    with tempfile.TemporaryDirectory(prefix="gradwire-bench-") as folder:
        settings = load_settings(
            None, model="tiny", grpc="127.0.0.1:0", data_dir=Path(folder), log_level="warning", insecure_no_auth=True
        )
        app = App(settings, RealEngines(), lambda line: print(line, file=sys.stderr))
        await app.start()
        try:
            with frozen_heap(), Child("stream_client", app.grpc_address) as client:
                for streams in arguments.streams:
                    rows += await _compare(app, client, streams, arguments)
        finally:
            await app.stop()
    return rows


async def _compare(app: App, client: Child, streams: int, arguments: argparse.Namespace) -> list[Row]:
    # So many requests after one another in each stream's place: a sample lasts three seconds or more, so that its first
    # moment, when all begin at once, and its last, when no more follow, are a small part of it.
    repeats = max(8, min(20, 512 // streams))
    lengths = lengths_of(streams, arguments.tokens, repeats, equal=arguments.equal)
    thousands = sum(map(sum, lengths)) / 1000

    async def over_grpc(kind: str) -> Sample:
        command = {"kind": kind, "lengths": lengths, "prompt": PROMPT}
        cpu = time.process_time()
        speed, client_cpu = await asyncio.to_thread(lambda: client.call(**command))
        return Sample(speed, (time.process_time() - cpu) / thousands, client_cpu)

    async def one_round() -> dict[str, Sample]:
        cpu = time.process_time()
        speed = await in_process(app, lengths)
        bare = Sample(speed, (time.process_time() - cpu) / thousands)
        return {"bare": bare, **{kind: await over_grpc(kind) for kind in CLIENTS}}

    await one_round()  # first times are slower on every side
    results = [await one_round() for _ in range(arguments.rounds)]
    for kind in results[0]:
        front = statistics.median(result[kind].front_cpu for result in results)
        ours = statistics.median(result[kind].client_cpu for result in results)
        print(
            f"{streams} at once, {kind}: CPU s per 1,000 tokens: {front:.3f} front, {ours:.3f} client", file=sys.stderr
        )
    return [
        compared(
            f"stream, {streams} at once, {name}",
            [result[kind].speed for result in results],
            [result["bare"].speed for result in results],
            "tok/s",
            more_is_better=True,
            required=REQUIRED if kind == "aio" and not arguments.equal else None,
            reference_name="AsyncLLM",
        )
        for kind, name in CLIENTS.items()
    ]


def main() -> None:
    """Command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32, 64], help="(%(default)s)")
    parser.add_argument("--tokens", type=int, default=128, help="of a stream, on average (%(default)s)")
    parser.add_argument("--equal", action="store_true", help="all streams have the same length")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    arguments = parser.parse_args()
    # As `gradwire serve` sets them.
    for name, value in {**OFFLINE, "VLLM_LOGGING_LEVEL": "ERROR", "GRPC_ENABLE_FORK_SUPPORT": "false"}.items():
        os.environ.setdefault(name, value)
    choose_poller()
    import uvloop

    publish(uvloop.run(measure(arguments)), arguments.json)


if __name__ == "__main__":  # the engine is spawned: it imports this file again
    main()
