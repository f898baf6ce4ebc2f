"""The client's process of `streaming.py`: reads streams, and says how many tokens a second came."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import grpc.aio

from benchmarks.child import obey
from gradwire.client import AsyncClient
from gradwire.v1 import sampling_params_pb2, sampling_pb2, sampling_pb2_grpc


class Clients:
    """Both kinds of client, on one loop that lives as long as the process."""

    def __init__(self, address: str) -> None:
        self._client = AsyncClient(address)
        self._address = address
        self._channel: grpc.aio.Channel | None = None

    async def measure(self, command: dict[str, Any]) -> tuple[float, float]:
        """(tokens per second, CPU seconds of this process per 1,000 tokens) of some streams at once."""
        stream = self._aio if command["kind"] == "aio" else self._stub

        async def one_after_another(lengths: list[int]) -> int:
            return sum([await stream(command["prompt"], tokens) for tokens in lengths])

        wall, cpu = time.perf_counter(), time.process_time()
        count = sum(await asyncio.gather(*map(one_after_another, command["lengths"])))
        return count / (time.perf_counter() - wall), (time.process_time() - cpu) * 1000 / count

    async def _aio(self, prompt: str, tokens: int) -> int:
        """As an application reads a stream."""
        count = 0
        async with self._client.sampling.generate_stream(
            prompt, max_tokens=tokens, temperature=1.0, ignore_eos=True
        ) as stream:
            async for delta in stream:
                count += len(delta.token_ids)
        return count

    async def _stub(self, prompt: str, tokens: int) -> int:
        """The generated stub: messages and nothing else."""
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self._address)
        request = sampling_pb2.GenerateStreamRequest(
            prompt=sampling_params_pb2.Prompt(text=prompt),
            params=sampling_params_pb2.SamplingParams(max_tokens=tokens, temperature=1.0, ignore_eos=True),
        )
        call: Any = sampling_pb2_grpc.SamplingServiceStub(self._channel).GenerateStream(request)
        count = 0
        async for message in call:
            for part in message.delta.completions:
                count += len(part.token_ids) // 4
        return count


def main() -> None:
    """Command line: the server's address."""
    loop = asyncio.new_event_loop()

    async def make() -> Clients:
        return Clients(sys.argv[1])

    clients = loop.run_until_complete(make())
    obey(lambda command: loop.run_until_complete(clients.measure(command)))


if __name__ == "__main__":
    main()
