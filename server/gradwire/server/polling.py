"""Which of gRPC's pollers this process uses.

Knows: what was measured of each grpcio. From 1.80 on its EventEngine hands each event from thread to thread: a call
that does nothing took 0.35 ms there and back, and with the poller of before 0.25 ms (grpcio 1.85, two cores). Does not
know: servers. To be chosen before grpc is first used; GRPC_EXPERIMENTS in the environment has the last word. The client
decides the same for its own process, in gradwire.client._core.polling; that one loads grpc, and so cannot be used here.
"""

from __future__ import annotations

import os
import re
from importlib.metadata import PackageNotFoundError, version

_FROM, _BEFORE = (1, 80), (1, 86)  # those that have both; others say that they do not know the experiments
_OLDER_POLLER = "-event_engine_client,-event_engine_listener"


def choose_poller() -> None:
    """The faster one, for this process and those that it starts."""
    if _has_both():
        os.environ.setdefault("GRPC_EXPERIMENTS", _OLDER_POLLER)


def _has_both() -> bool:
    """False where it cannot be told: a grpc that was built or bundled by hand may have any metadata, or none."""
    try:
        found = re.match(r"(\d+)\.(\d+)", version("grpcio") or "")
    except PackageNotFoundError:
        return False
    return found is not None and _FROM <= (int(found[1]), int(found[2])) < _BEFORE
