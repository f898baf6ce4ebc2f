"""Counts calls and seconds per method and code, and logs the slow and the failed ones."""

from __future__ import annotations

import asyncio
import logging
import time

from gradwire.server.errors import GradwireError
from gradwire.server.observability.metrics import CallMetrics
from gradwire.server.rpc.interceptors.step import Call, Step

log = logging.getLogger(__name__)


class Telemetry(Step):
    """Outermost: it sees every error, before it becomes a status."""

    def __init__(self, metrics: CallMetrics) -> None:
        self._metrics = metrics

    async def enter(self, call: Call) -> None:
        call.began = time.monotonic()
        self._metrics.begin(call.method)

    def leave(self, call: Call, error: BaseException | None) -> None:
        seconds, code = time.monotonic() - call.began, _code(error)
        self._metrics.end(call.method, code, seconds)
        level = logging.DEBUG if code in ("OK", "CANCELLED") else logging.INFO
        log.log(level, "%s %s %.3fs", call.method, code, seconds)


def _code(error: BaseException | None) -> str:
    if error is None:
        return "OK"
    if isinstance(error, asyncio.CancelledError):
        return "CANCELLED"
    return error.code if isinstance(error, GradwireError) else "INTERNAL"
