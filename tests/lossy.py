"""A network that loses answers: a TCP proxy that swallows the reply of one call, and breaks the connection.

It breaks it when the server has ended the call, by the server's own metrics: so what is lost is the answer and
nothing else. It knows no protocol, and so works for gRPC and for HTTP.
"""

from __future__ import annotations

import asyncio
import re
import threading
import urllib.request
from typing import Self


class LossyProxy:
    """Passes bytes to `target`, HOST:PORT. `lose(method)` arms it for one call; `lost` are those it has lost."""

    def __init__(self, target: str, metrics: str) -> None:
        self._host, _, self._port = target.rpartition(":")
        self._metrics = f"http://{metrics}/metrics"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._connections: set[asyncio.StreamWriter] = set()
        self._swallow = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.lost: list[str] = []
        self.address = ""

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def ended(self, method: str) -> int:
        """How many calls of a method the server has answered well: "TrainingService/Step"."""
        text = urllib.request.urlopen(self._metrics, timeout=10).read().decode()
        labels = rf'rpc_method="/gradwire.v1.{method}",rpc_response_status_code="OK"'
        found = re.search(rf"rpc_server_call_duration_seconds_count{{{labels}}} ([0-9.]+)", text)
        return int(float(found.group(1))) if found else 0

    def lose(self, method: str) -> None:
        """The next answer of `method` does not arrive."""
        before = self.ended(method)
        self._swallow = True

        async def watch() -> None:
            while await asyncio.to_thread(self.ended, method) == before:
                pass  # each look is a request that takes milliseconds
            self.lost.append(method)
            self._swallow = False
            for writer in list(self._connections):
                writer.transport.abort()

        self._loop.call_soon_threadsafe(lambda: self._keep(self._loop.create_task(watch())))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(self._host, int(self._port))
        self._connections |= {writer, up_writer}
        self._keep(asyncio.create_task(self._pump(reader, up_writer, answers=False)))
        self._keep(asyncio.create_task(self._pump(up_reader, writer, answers=True)))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        try:
            while data := await reader.read(1 << 16):
                if not (answers and self._swallow):
                    writer.write(data)
                    await writer.drain()
        except ConnectionError:
            pass  # that is what this proxy is for
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _stop(self) -> None:
        self._server.close()
        for writer in list(self._connections):
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
