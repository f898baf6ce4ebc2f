"""When a failed call is sent again, and after how long.

Knows: attempts, waits and the time left. Does not know: what a call is, nor whether it is safe to repeat.
"""

from __future__ import annotations

import random

from gradwire.client.config import RetryConfig
from gradwire.client.errors import GradwireError, UnavailableError

_LONGEST_WAIT_S = 60.0


def wait_before_next(retry: RetryConfig, error: GradwireError, attempt: int, left: float) -> float | None:
    """Seconds to wait after the failure of the `attempt`-th attempt (from 1); None: do not try again.

    `left` are seconds until the deadline. A wait that the server asks for comes before the backoff.
    """
    if not isinstance(error, UnavailableError) or attempt >= retry.max_attempts:
        return None
    if error.retry_after is not None:
        wait = error.retry_after
    else:
        grown = retry.initial_backoff_s * retry.backoff_multiplier ** (attempt - 1)
        wait = min(grown, retry.max_backoff_s) * random.uniform(0.8, 1.2)
    return None if wait > _LONGEST_WAIT_S or wait >= left else wait
