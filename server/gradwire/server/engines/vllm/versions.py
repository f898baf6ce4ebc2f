"""Weight versions of a model and its adapters in the one string that vLLM hangs on every step's output.

"3 1=5 2=7": the model's own weights are version 3, those of adapter 1 version 5. So each token of each request
knows its version, also across an update in the middle of a completion.
"""

from __future__ import annotations


class Versions:
    """What one engine holds. `base` is the model's own version, `adapters` that of each adapter by number."""

    def __init__(self) -> None:
        self.base = 0
        self.adapters: dict[int, int] = {}

    def text(self, *, base: int | None = None) -> str:
        """As vLLM gets it; with another base version for one that is about to be committed."""
        own = str(self.base if base is None else base)
        return " ".join([own, *(f"{number}={version}" for number, version in sorted(self.adapters.items()))])


def version_in(text: str, adapter: int) -> int:
    """The version of an adapter (0: of the model itself) in such a string; 0 for one that is not in it."""
    own, *others = text.split(" ")
    if not adapter:
        return int(own)
    return next((int(part.partition("=")[2]) for part in others if part.startswith(f"{adapter}=")), 0)
