"""The wait for the calls under way when a server ends, and what the operator is told of it meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from gradwire.server.rpc.interceptors.admission import Admission

log = logging.getLogger(__name__)

_QUIET_S = 0.2  # streams that only wait for something have just been sent away
_AGAIN_S = 5.0
_MOST_METHODS = 3


async def drain(admission: Admission, hurried: asyncio.Event, seconds: float, progress: Callable[[str], None]) -> bool:
    """Wait until the calls under way have ended, for so many seconds or until `hurried`; whether they have."""
    clock = asyncio.get_running_loop().time
    ends, pause = clock() + seconds, _QUIET_S
    drained, hurry = asyncio.ensure_future(admission.drain()), asyncio.ensure_future(hurried.wait())
    try:
        while True:
            left = max(0.0, ends - clock())
            await asyncio.wait({drained, hurry}, timeout=min(pause, left), return_when=asyncio.FIRST_COMPLETED)
            left = ends - clock()
            if drained.done() or hurry.done() or left <= 0:
                break
            under_way = f"{_calls(admission.methods)} under way ({_named(admission.methods)})"
            progress(f"draining: {under_way}, {left:.0f} s left; a second signal ends them now")
            pause = _AGAIN_S
        return drained.done()
    finally:
        drained.cancel()
        hurry.cancel()


async def cut_off(admission: Admission, cut: Callable[[], Awaitable[None]]) -> None:
    """End what is still under way, with a line in the log: such calls have none of their own."""
    methods = admission.methods
    log.warning("cut %s: %s", _calls(methods), _named(methods))
    await cut()


def _calls(methods: Counter[str]) -> str:
    count = methods.total()
    return f"{count} {'call' if count == 1 else 'calls'}"


def _named(methods: Counter[str]) -> str:
    """ "2 SamplingService/Generate, 1 TrainingService/Step"."""
    most = methods.most_common(_MOST_METHODS)
    named = [f"{number} {method.removeprefix('/gradwire.').removeprefix('v1.')}" for method, number in most]
    if others := methods.total() - sum(number for _, number in most):
        named.append(f"{others} others")
    return ", ".join(named)
