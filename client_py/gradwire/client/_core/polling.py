"""Loads grpc with the faster of its pollers. To be imported before grpc is.

From 1.80 on gRPC's EventEngine hands each event from thread to thread, and a blocking call waits for three of them: on
two cores an action of a control loop took 0.36 ms there and back, and with the poller of before 0.28 ms (grpcio 1.85).
Versions from 1.86 on are not known to have both. What the environment says in GRPC_EXPERIMENTS has the last word, and
so has an application that imports grpc first; the environment stays as it is for the processes that are started later.
"""

from __future__ import annotations

import os
import re
import sys
from importlib.metadata import PackageNotFoundError, version

_NAME = "GRPC_EXPERIMENTS"
_OLDER_POLLER = "-event_engine_client,-event_engine_listener"
_FROM, _BEFORE = (1, 80), (1, 86)


def load() -> None:
    """Import grpc, which reads its experiments then."""
    if "grpc" in sys.modules or _NAME in os.environ or not _has_both():
        return
    os.environ[_NAME] = _OLDER_POLLER
    try:
        import grpc  # noqa: F401
    finally:
        os.environ.pop(_NAME, None)


def _has_both() -> bool:
    """False where it cannot be told: a grpc that was built or bundled by hand may have any metadata, or none."""
    try:
        found = re.match(r"(\d+)\.(\d+)", version("grpcio") or "")
    except PackageNotFoundError:
        return False
    return found is not None and _FROM <= (int(found[1]), int(found[2])) < _BEFORE


load()
