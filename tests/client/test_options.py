"""Channel options do what they say: gRPC passes over an option that is misspelt."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest

from gradwire.client import AsyncClient, KeepAliveConfig, ResourceExhaustedError, UnavailableError
from gradwire.client.config import RetryConfig
from tests.client.fake import Fake
from tests.client.waiting import until
from tests.client.wire import failure

ONCE = RetryConfig(max_attempts=1)


class Proxy:
    """Passes bytes to a server until it is told to swallow them, as a broken network does."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.swallow = False
        self.connections = 0
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> int:
        """The port to connect to."""
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.target)
        self.tasks += [
            asyncio.create_task(self._pump(reader, up_writer)),
            asyncio.create_task(self._pump(up_reader, writer)),
        ]

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not self.swallow:
                writer.write(data)
        writer.close()

    async def stop(self) -> None:
        """Ends all."""
        self.server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.mark.parametrize("transport", ["grpc"])  # TCP's own probes, of HTTP, would be answered by this proxy
async def test_keepalive_notices_a_network_that_swallows_everything(fake: Fake) -> None:
    proxy = Proxy(fake.port)
    port = await proxy.start()
    keepalive = KeepAliveConfig(interval_s=0.3, timeout_s=0.3)
    async with AsyncClient(f"127.0.0.1:{port}", keepalive=keepalive, retry=ONCE) as client:
        fake.stall = True
        call = asyncio.create_task(client.sampling.generate("hi", timeout=30))
        await until(lambda: fake.requests["Generate"])
        proxy.swallow = True
        begin = time.monotonic()
        with pytest.raises(UnavailableError):
            await call
        assert time.monotonic() - begin < 10
    await proxy.stop()


async def test_clients_do_not_share_a_connection(fake: Fake) -> None:
    proxy = Proxy(fake.port)
    address = fake.address.replace(str(fake.port), str(await proxy.start()))
    async with AsyncClient(address) as one, AsyncClient(address) as other:
        await one.sampling.generate("hi")
        await one.sampling.generate("hi")
        await other.sampling.generate("hi")
        assert proxy.connections == 2
    await proxy.stop()


async def test_the_largest_message(fake: Fake) -> None:
    batch = {"input_ids": np.ones((1, 60_000), np.int32)}
    async with AsyncClient(fake.address, max_message_bytes=200_000, retry=ONCE) as client:
        with pytest.raises(ResourceExhaustedError, match="larger max_message_bytes=") as caught:
            await client.training.fwd_bwd(1, batch)
    assert caught.value.reason == "MESSAGE_TOO_LARGE"
    assert caught.value.metadata["limit"] == "200000"
    async with AsyncClient(fake.address, retry=ONCE) as client:
        await client.training.fwd_bwd(1, batch, return_outputs=True)


async def test_a_client_that_never_retries(fake: Fake) -> None:
    async with AsyncClient(fake.address, retry=ONCE) as client:
        fake.failures["Generate"] = [failure("UNAVAILABLE", "down")]
        fake.failures["GenerateStream"] = [failure("UNAVAILABLE", "down")]
        with pytest.raises(UnavailableError):
            await client.sampling.generate("hi")
        with pytest.raises(UnavailableError):
            await client.sampling.generate_stream("hi").result()
    assert len(fake.requests["GenerateStream"]) == 1


async def test_a_restarted_server_is_found_again_at_once(fake: Fake, client: AsyncClient) -> None:
    await client.sampling.generate("hi")
    address = fake.address
    await fake.stop()
    begin = time.monotonic()
    call = asyncio.create_task(client.sampling.generate("hi"))
    await asyncio.sleep(0.3)
    await fake.start(address)
    assert (await call).text == "hello"
    assert time.monotonic() - begin < 5
