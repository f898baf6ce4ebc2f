"""A lease: kept alive by heartbeats, lapses without them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class JobLease:
    """After `duration` seconds without a heartbeat the job pauses; after as long again it is destroyed."""

    duration: float
    renewed: float = field(default_factory=time.time)  # Unix seconds

    def renew(self) -> None:
        """A heartbeat came."""
        self.renewed = time.time()

    @property
    def expires_at(self) -> float:
        """Unix seconds."""
        return self.renewed + self.duration

    def lapsed(self) -> bool:
        """No heartbeat for `duration`."""
        return time.time() >= self.expires_at

    def dead(self) -> bool:
        """No heartbeat for twice `duration`."""
        return time.time() >= self.renewed + 2 * self.duration
