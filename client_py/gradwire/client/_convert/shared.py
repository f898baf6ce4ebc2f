"""One call's large tensors, written to shared memory where the server may read them there.

Knows: tensor messages, what a refusal looks like, and when a segment may be used again. Does not know: how segments
are made.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from gradwire.client._convert.tensors import LARGE_BYTES, Array, wire_type
from gradwire.client._core.blocking import BlockingConnection
from gradwire.client._core.connection import Connection
from gradwire.client._core.countdown import Countdown
from gradwire.client._core.rpc import Encoded, Request, Response, Rpc
from gradwire.client._core.shared import Segment, SegmentPool
from gradwire.client.errors import FailedPreconditionError
from gradwire.v1 import tensor_pb2 as pb

_REFUSED = "SHARED_MEMORY_UNAVAILABLE"


class Lent:
    """The segments of one call: `with Lent(pool) as lent`, build the request, and send it with `lent.unary`.

    A request may be built in another thread, which goes on when the call is cancelled: then nothing is placed.
    """

    def __init__(self, pool: SegmentPool) -> None:
        self._pool = pool
        self._placed: list[tuple[pb.Tensor, Segment, int]] = []
        self._lock = threading.Lock()
        self._attempts = 0
        self._read = False
        self._ended = False

    @property
    def any(self) -> bool:
        """Something lies in a segment."""
        return bool(self._placed)

    def put(self, message: pb.Tensor, array: Array, dtype: str) -> bool:
        """Writes what `elements` gave into a segment, and the tensor that names it into `message`.

        False: nothing was done; the bytes belong into the message.
        """
        if self._pool.off or array.nbytes < LARGE_BYTES:
            return False
        with self._lock:
            segment = None if self._ended else self._pool.borrow(array.nbytes)
            if segment is None:
                return False
            self._placed.append((message, segment, array.nbytes))
        segment.write(array.reshape(-1).data.cast("B"))
        message.dtype = wire_type(dtype)
        message.shape.extend(array.shape)
        message.shared_memory.name = segment.name
        message.shared_memory.length = array.nbytes
        return True

    async def unary(
        self,
        connection: Connection | BlockingConnection,
        rpc: Rpc[Request, Response],
        request: Request | Encoded,
        *,
        timeout: float | None,
        repeatable: bool | None = None,
        plain: Callable[[], Awaitable[Response]] | None = None,
    ) -> Response:
        """As the connection's. A server that cannot read the segments is sent the bytes, now and from now on.

        `plain` sends the request when all bytes are in it. Default: as the connection does.
        """
        if not self._placed:
            return await (plain() if plain else connection.unary(rpc, request, timeout=timeout, repeatable=repeatable))
        countdown = Countdown(connection.deadline(timeout))
        left = countdown.left()
        try:
            response = await connection.unary(rpc, request, timeout=left, repeatable=repeatable, begun=self._begun)
        except FailedPreconditionError as error:
            # It is said before anything is done. A loopback address may lead into a container, or to another host.
            if error.reason != _REFUSED:
                raise
            self._pool.close()
            self.take_back()
            if plain:
                return await plain()
            return await connection.unary(rpc, request, timeout=countdown.left(), repeatable=repeatable)
        # Of several attempts, all but the last may still be read by a server.
        self._read = self._attempts == 1
        return response

    def take_back(self) -> None:
        """Puts the bytes into the messages instead."""
        for message, segment, size in self._placed:
            message.data = segment.read(size)

    def _begun(self) -> None:
        self._attempts += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._ended = True
        for _, segment, _ in self._placed:
            if self._read:
                self._pool.give_back(segment)
            else:
                self._pool.drop(segment)
        self._placed.clear()
