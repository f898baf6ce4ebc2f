"""A lease: kept alive by heartbeats, lapses without them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class JobLease:
    """After `duration` seconds without a heartbeat the job pauses; after as long again it is destroyed."""

    duration: float
    renewed: float = field(default_factory=time.monotonic)  # the wall clock may be set while a job lives

    def renew(self) -> None:
        """A heartbeat came."""
        self.renewed = time.monotonic()

    @property
    def expires_at(self) -> float:
        """Unix seconds."""
        return time.time() + self.renewed + self.duration - time.monotonic()

    def lapsed(self) -> bool:
        """No heartbeat for `duration`."""
        return time.monotonic() >= self.renewed + self.duration

    def dead(self) -> bool:
        """No heartbeat for twice `duration`."""
        return time.monotonic() >= self.renewed + 2 * self.duration
