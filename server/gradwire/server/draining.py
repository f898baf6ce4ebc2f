"""The wait for the calls under way when a server ends, and what the operator is told of it meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from gradwire.server.rpc.interceptors.admission import Admission

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
            progress(f"draining: {_counted(admission.methods)}, {left:.0f} s left; a second signal ends them now")
            pause = _AGAIN_S
        return drained.done()
    finally:
        drained.cancel()
        hurry.cancel()


def _counted(methods: Counter[str]) -> str:
    """ "3 calls under way (2 SamplingService/Generate, 1 TrainingService/Step)"."""
    count = methods.total()
    most = methods.most_common(_MOST_METHODS)
    named = [f"{number} {method.removeprefix('/gradwire.').removeprefix('v1.')}" for method, number in most]
    if others := count - sum(number for _, number in most):
        named.append(f"{others} others")
    return f"{count} {'call' if count == 1 else 'calls'} under way ({', '.join(named)})"
