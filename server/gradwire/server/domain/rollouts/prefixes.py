"""Many token sequences, and what a prompt shares with them, without looking at each of them token by token."""

from __future__ import annotations

from bisect import bisect_left, insort

import numpy as np
import numpy.typing as npt

from gradwire.server.engines.sampling import TokenIds

_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no power of it vanishes
_Hashes = npt.NDArray[np.uint64]


class PrefixIndex:
    """Sequences by number, from 0. Hashes only choose what is then compared."""

    def __init__(self) -> None:
        self._tokens: list[TokenIds] = []
        self._sizes = np.empty(64, np.int64)
        self._hashes = np.empty(64, np.uint64)
        self._powers = np.ones(1, np.uint64)
        self._sorted: list[tuple[bytes, int]] = []

    def __len__(self) -> int:
        return len(self._tokens)

    def add(self, tokens: TokenIds) -> int:
        """Another sequence, not empty; its number."""
        number = len(self._tokens)
        self._tokens.append(tokens)
        if number == len(self._sizes):
            self._sizes, self._hashes = np.resize(self._sizes, 2 * number), np.resize(self._hashes, 2 * number)
        self._note(number, tokens)
        return number

    def replace(self, number: int, tokens: TokenIds) -> None:
        """A sequence has become another."""
        del self._sorted[bisect_left(self._sorted, (_key(self._tokens[number]), number))]
        self._tokens[number] = tokens
        self._note(number, tokens)

    def heads(self, prompt: TokenIds) -> list[int]:
        """The sequences that a prompt begins with, the longest first."""
        count = len(self._tokens)
        sizes = self._sizes[:count]
        fitting = np.flatnonzero(sizes <= len(prompt))
        if not len(fitting):
            return []
        sums = np.cumsum(self._terms(prompt))
        likely = fitting[sums[sizes[fitting] - 1] == self._hashes[fitting]]
        found = [int(n) for n in likely if np.array_equal(prompt[: sizes[n]], self._tokens[n])]
        return sorted(found, key=lambda number: -sizes[number])

    def closest(self, prompt: TokenIds) -> tuple[int, int]:
        """The sequence that shares the longest head with a prompt, and its length. There is at least one sequence."""
        place = bisect_left(self._sorted, (_key(prompt), -1))
        # In the order of their tokens, what shares most stands beside it.
        numbers = [number for _, number in self._sorted[max(place - 1, 0) : place + 1]]
        shared = [_shared(self._tokens[number], prompt) for number in numbers]
        return max(zip(numbers, shared, strict=True), key=lambda pair: (pair[1], pair[0]))

    def _note(self, number: int, tokens: TokenIds) -> None:
        self._sizes[number] = len(tokens)
        self._hashes[number] = self._terms(tokens).sum(dtype=np.uint64)
        insort(self._sorted, (_key(tokens), number))

    def _terms(self, tokens: TokenIds) -> _Hashes:
        """What each token adds to the hash of all up to it, modulo 2^64."""
        if len(tokens) > len(self._powers):
            factors = np.full(2 * len(tokens), _BASE)
            factors[0] = 1
            self._powers = np.multiply.accumulate(factors)
        return (tokens.astype(np.uint64) + np.uint64(1)) * self._powers[: len(tokens)]


def _key(tokens: TokenIds) -> bytes:
    """Bytes that are in the order of the tokens."""
    return tokens.astype(">u4").tobytes()


def _shared(left: TokenIds, right: TokenIds) -> int:
    """Length of the common head."""
    size = min(len(left), len(right))
    different = np.flatnonzero(left[:size] != right[:size])
    return int(different[0]) if len(different) else size
