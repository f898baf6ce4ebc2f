"""Counts calls and seconds per method and code, and logs the slow and the failed ones."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gradwire.server.errors import GradwireError
from gradwire.server.observability.metrics import CallMetrics
from gradwire.server.rpc.interceptors.step import Call, Step

log = logging.getLogger(__name__)


class Telemetry(Step):
    """Outermost: it sees every exception, before it becomes a status."""

    def __init__(self, metrics: CallMetrics) -> None:
        self._metrics = metrics

    @asynccontextmanager
    async def around(self, call: Call) -> AsyncIterator[None]:
        began = time.monotonic()
        code = "OK"
        self._metrics.begin(call.method)
        try:
            yield
        except asyncio.CancelledError:
            code = "CANCELLED"
            raise
        except GradwireError as error:
            code = error.code
            raise
        except BaseException:
            code = "INTERNAL"
            raise
        finally:
            seconds = time.monotonic() - began
            self._metrics.end(call.method, code, seconds)
            level = logging.DEBUG if code in ("OK", "CANCELLED") else logging.INFO
            log.log(level, "%s %s %.3fs", call.method, code, seconds)
