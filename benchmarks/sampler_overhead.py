"""What VllmSampler costs over the bare AsyncLLM: streams of the `tiny` model, side by side in one run.

The same engine serves both, turn by turn, so that what else the machine does hits them alike. The
model is nearly free: what is measured is the path of a token through the front process.

    python benchmarks/sampler_overhead.py [--streams 1 8 32 64] [--tokens 128] [--rounds 3]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

import uvloop

from gradwire.server.engines.sampling import SamplerConfig, SampleRequest, SamplingParams
from gradwire.server.engines.vllm.engine import VllmSampler
from gradwire.server.models.resolve import resolve_model

PROMPT = "The quick brown fox jumps over the lazy dog. "
Stream = Callable[[int], Awaitable[int]]


def bare(sampler: VllmSampler, tokens: int, log_probs: int | None) -> Stream:
    """AsyncLLM as its documentation uses it: one delta per token."""
    from vllm.inputs.engine import tokens_input
    from vllm.sampling_params import RequestOutputKind
    from vllm.sampling_params import SamplingParams as VllmParams

    prompt = [int(token) for token in sampler.tokenize(PROMPT)]

    async def stream(number: int) -> int:
        params = VllmParams(
            temperature=1.0,
            max_tokens=tokens,
            ignore_eos=True,
            logprobs=log_probs,
            output_kind=RequestOutputKind.DELTA,
        )
        count = 0
        async for output in sampler._link.llm.generate(tokens_input(prompt), params, f"bare-{number}-{time.time_ns()}"):
            count += len(output.outputs[0].token_ids)
        return count

    return stream


def ours(sampler: VllmSampler, tokens: int, log_probs: int | None) -> Stream:
    """The same through VllmSampler.generate."""
    prompt = sampler.tokenize(PROMPT)
    params = SamplingParams(temperature=1.0, max_tokens=tokens, ignore_eos=True, log_probs=log_probs)

    async def stream(number: int) -> int:
        count = 0
        async for event in sampler.generate(SampleRequest(f"ours-{number}", prompt, params, stream=True)):
            count += len(event.deltas[0].token_ids)
        return count

    return stream


async def speed(stream: Stream, streams: int) -> tuple[float, float]:
    """(tokens per second, CPU seconds of this process per 1,000 tokens)."""
    wall, cpu = time.perf_counter(), time.process_time()
    count = sum(await asyncio.gather(*(stream(number) for number in range(streams))))
    return count / (time.perf_counter() - wall), (time.process_time() - cpu) * 1000 / count


async def measure(arguments: argparse.Namespace) -> None:
    """Print a table."""
    config = SamplerConfig("tiny", str(resolve_model("tiny")), kv_cache_bytes=256 << 20)
    sampler = VllmSampler(config)
    await sampler.start(print)
    try:
        ways = {
            name: make(sampler, arguments.tokens, arguments.log_probs)
            for name, make in (("bare", bare), ("ours", ours))
        }
        for stream in ways.values():
            await speed(stream, 8)
        print(
            f"{'streams':>8} {'bare tok/s':>12} {'ours tok/s':>12} {'ratio':>6} {'bare ms/tok':>12} {'ours ms/tok':>12}"
        )
        for streams in arguments.streams:
            results: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
            for _ in range(arguments.rounds):
                for name, stream in ways.items():
                    results[name].append(await speed(stream, streams))
            rate = {name: statistics.median(r for r, _ in runs) for name, runs in results.items()}
            cpu = {name: statistics.median(c for _, c in runs) for name, runs in results.items()}
            print(
                f"{streams:>8} {rate['bare']:>12.0f} {rate['ours']:>12.0f} {rate['ours'] / rate['bare']:>6.2f}"
                f" {cpu['bare']:>12.3f} {cpu['ours']:>12.3f}"
            )
    finally:
        await sampler.shutdown()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--log-probs", type=int, default=None, help="log-probs of this many likely tokens, too")
    uvloop.run(measure(parser.parse_args()))


if __name__ == "__main__":  # the engine is spawned: it imports this file again
    main()
