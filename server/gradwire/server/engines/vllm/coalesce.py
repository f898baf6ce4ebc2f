"""How many tokens a delta carries, by what the front process can afford.

Each delivery costs the front and the client's process a fifth of a millisecond each, nearly all of it gRPC's, whether
it carries one token or ten. So a slow model sends every token at once, and a fast one or many streams send them in
small batches: the deliveries per second are bounded, by the cores that there are, and so is the time by which a token
is held back. The first token of a completion always goes at once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gradwire.server.engines.cores import usable_cores

if TYPE_CHECKING:
    from vllm.v1.engine.output_processor import RequestState

WINDOW_S = 0.1
# A burst of streams would queue up thousands of deliveries before a whole window is over.
BURST_TOKENS, BURST_WINDOW_S = 128, 0.02
DELIVERIES_PER_CORE_S = 150  # a thirtieth of each core, at each end
MAX_DELAY_S = 0.2


class Coalescer:
    """Follows the tokens of all streams of one sampler; `interval` is the tokens per delta now."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, cores: int | None = None) -> None:
        """`cores` that front, engine and clients share. Default: those of this process."""
        self.interval = 1
        self._affordable = DELIVERIES_PER_CORE_S * (cores or usable_cores())  # deliveries per second
        self._clock = clock
        self._streams = 0
        self._most = 0  # streams at once, since the window began
        self._tokens = 0
        self._since = clock()
        self._rate = self._pace = 0.0  # tokens per second as last measured: of all streams, and of one

    def open(self) -> None:
        """A stream begins."""
        if not self._streams:  # the time without any is no part of the rate
            self._restart()
        self._streams += 1
        self._most = max(self._most, self._streams)
        if self._rate:
            # Until it is measured anew: no stream faster, and all of them no faster, than the last time.
            self.interval = self._choose(min(self._rate, self._pace * self._streams))

    def close(self) -> None:
        """A stream ended."""
        self._streams -= 1

    def count(self, tokens: int) -> None:
        """Tokens were delivered to one stream."""
        self._tokens += tokens
        elapsed = self._clock() - self._since
        if elapsed >= (BURST_WINDOW_S if self._tokens >= BURST_TOKENS else WINDOW_S):
            self._rate = self._tokens / elapsed
            self._pace = self._rate / max(self._most, 1)
            self.interval = self._choose(self._rate)
            self._restart()

    def _choose(self, rate: float) -> int:
        affordable = math.ceil(rate / self._affordable)
        timely = int(MAX_DELAY_S * rate / max(self._streams, 1))
        return max(1, min(affordable, timely))

    def _restart(self) -> None:
        self._tokens = 0
        self._most = self._streams
        self._since = self._clock()


def set_interval(states: Iterable[RequestState], interval: int) -> None:
    """Change a running request's tokens per delta, in vLLM's record of it.

    vLLM keeps no account of what it has sent while the interval is 1, so that is made up for; for
    the same reason a request never goes back to 1.
    """
    for state in states:
        if state.stream_interval == 1 and interval > 1:
            state.sent_tokens_offset = state.detokenizer.num_output_tokens()
            state.stream_interval = interval
        elif state.stream_interval > 1:
            state.stream_interval = max(interval, 2)
