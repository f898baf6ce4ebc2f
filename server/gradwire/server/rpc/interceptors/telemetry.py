"""Counts calls and seconds per method and code, and logs the failed ones."""

from __future__ import annotations

import asyncio
import logging
import time

from gradwire.server.errors import GradwireError, InvalidArgument
from gradwire.server.observability.metrics import CallMetrics
from gradwire.server.rpc.interceptors.paths import known_part
from gradwire.server.rpc.interceptors.step import Call, Step

log = logging.getLogger(__name__)

# The server's own want of room, for its operator to mend; their texts hold paths and the system's words. Whatever else
# is the server's fault has a line where it happens: the database, INTERNAL, an engine that died.
_OPERATORS = frozenset(
    {
        "CHECKPOINT_NOT_DELETED",
        "CHECKPOINT_NOT_WRITTEN",
        "NO_MEMORY_TO_WAKE",
        "SHARED_MEMORY_FULL",
        "SLEEP_FAILED",
        "SPILL_FAILED",
    }
)


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
        if isinstance(error, GradwireError) and error.reason in _OPERATORS:
            log.warning("%s %s %.3fs %s: %s", call.method, code, seconds, error.reason, " ".join(error.message.split()))
            return
        level = logging.DEBUG if code in ("OK", "CANCELLED") else logging.INFO
        if log.isEnabledFor(level):
            log.log(level, "%s %s %.3fs%s", call.method, code, seconds, _why(call.method, error))


def _code(error: BaseException | None) -> str:
    if error is None:
        return "OK"
    task = asyncio.current_task()
    # Whoever is called off may end by another error: that of what it was waiting for, which was called off, too.
    if isinstance(error, asyncio.CancelledError) or (task is not None and task.cancelling()):
        return "CANCELLED"
    return error.code if isinstance(error, GradwireError) else "INTERNAL"


def _why(method: str, error: BaseException | None) -> str:
    """The reason and the first bad field, with a space before each. Values stay out of the log."""
    if not isinstance(error, GradwireError):
        return ""
    field = known_part(method, error.violations[0].field) if isinstance(error, InvalidArgument) else ""
    return f" {error.reason} {field}".rstrip()
