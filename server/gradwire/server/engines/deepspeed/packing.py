"""Which rows share a micro-batch, and how their tokens are laid out in it. Numpy only.

Rows are cut after their last scored token (nothing behind it can matter to a causal model), rows that begin
alike (a group's prompt) keep one copy of the beginning, and what remains is placed by first-fit-decreasing into
micro-batches of a token budget. Rows that a loss takes together are never parted. Without packing, each row is
padded to the longest of its micro-batch instead. Rows never attend to each other: `Segments` says what each token
may see. Does not know: torch, attention, losses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

MIN_SHARED_PREFIX = 8
"""Shorter prefixes are not shared: it would save little and tie rows together for nothing."""

MAX_DEPTH = 100
"""Of prefixes within prefixes that are looked at: rows that each extend the one before nest without end."""


@dataclass(frozen=True, slots=True)
class Segments:
    """Runs of packed tokens. A token sees its segment's prefix, and its own segment up to itself. All [G]."""

    start: Ints
    length: Ints
    prefix_start: Ints
    prefix_length: Ints  # 0: no prefix


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """T packed tokens that score N entries of R rows. `source` points into the batch's flat columns."""

    tokens: Ints  # [T]
    positions: Ints  # [T], from 0 in each row
    segments: Segments
    hidden: Ints  # [N] packed position whose hidden state scores the entry
    labels: Ints  # [N] token that is scored
    source: Ints  # [N] flat position of the entry in the batch
    rows: Ints  # [N] index into row_ids
    row_ids: Ints  # [R] rows of the batch


@dataclass(frozen=True, slots=True)
class _Row:
    row: int
    start: int  # flat position of its first token
    length: int  # tokens that are needed as input
    scored: Ints  # positions within the row


@dataclass(frozen=True, slots=True)
class _Unit:
    """Rows that stay together: one shared prefix of `prefix` tokens (0: none, then it is one row)."""

    prefix: int
    rows: tuple[_Row, ...]

    @property
    def tokens(self) -> int:
        return self.prefix + sum(row.length - self.prefix for row in self.rows)


Bundle = list[_Unit]
"""Units that go to one micro-batch."""


def plan(
    input_ids: npt.NDArray[np.int32],
    row_offsets: Ints,
    mask: npt.NDArray[np.float32],
    *,
    budget: int,
    share_prefixes: bool = True,
    packing: bool = True,
    together: int = 1,
) -> list[MicroBatch]:
    """Micro-batches of at most `budget` tokens; a longer row goes alone. Unscored rows are left out.

    `together`: rows [k n, (k + 1) n) share a micro-batch. `packing` False: padding counts as tokens too, and no
    prefix is shared.
    """
    rows = _scored_rows(row_offsets, mask)
    if not packing:
        return [_lay_out(input_ids, bundle, width) for bundle, width in _padded_bins(rows, budget, together)]
    bundles = _bundles(input_ids, rows, budget=budget, share=share_prefixes, together=together)
    bins = first_fit_decreasing([_tokens(bundle) for bundle in bundles], budget)
    return [_lay_out(input_ids, [unit for index in members for unit in bundles[index]]) for members in bins]


def split_rows(
    input_ids: npt.NDArray[np.int32],
    row_offsets: Ints,
    mask: npt.NDArray[np.float32],
    parts: int,
    *,
    together: int = 1,
) -> list[Ints]:
    """Rows of each of `parts` ranks, in rising order, balanced by packed tokens; a part may be empty.

    Rows that begin alike go to the same rank as long as that does not unbalance the ranks; rows [k n, (k + 1) n)
    with n = `together` always do.
    """
    rows = _scored_rows(row_offsets, mask)
    total = sum(map(_tokens, _bundles(input_ids, rows, budget=len(input_ids) + 1, share=True, together=together)))
    # Units of at most a quarter of a rank's share: small enough to balance, large enough to share prompts.
    bundles = _bundles(input_ids, rows, budget=max(1, total // (4 * parts)), share=True, together=together)
    loads, members = [0] * parts, [list[int]() for _ in range(parts)]
    for bundle in sorted(bundles, key=lambda bundle: -_tokens(bundle)):
        lightest = loads.index(min(loads))
        loads[lightest] += _tokens(bundle)
        members[lightest] += [row.row for unit in bundle for row in unit.rows]
    return [np.array(sorted(rows), np.int64) for rows in members]


def first_fit_decreasing(sizes: Sequence[int], capacity: int) -> list[list[int]]:
    """Bins of indices; each bin's sizes sum to at most `capacity`, but for one larger item alone."""
    bins: list[list[int]] = []
    room: list[int] = []
    for index in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        for target, free in enumerate(room):
            if sizes[index] <= free:
                bins[target].append(index)
                room[target] -= sizes[index]
                break
        else:
            bins.append([index])
            room.append(capacity - sizes[index])
    return bins


def _scored_rows(row_offsets: Ints, mask: npt.NDArray[np.float32]) -> list[_Row]:
    rows = []
    for row in range(len(row_offsets) - 1):
        start, end = int(row_offsets[row]), int(row_offsets[row + 1])
        scored = np.flatnonzero(mask[start:end])
        if len(scored):
            rows.append(_Row(row, start, int(scored[-1]) + 1, scored))
    return rows


def _tokens(bundle: Bundle) -> int:
    return sum(unit.tokens for unit in bundle)


def _bundles(
    input_ids: npt.NDArray[np.int32], rows: list[_Row], *, budget: int, share: bool, together: int
) -> list[Bundle]:
    if together == 1:
        return [[unit] for unit in _units(input_ids, rows, budget=budget, share=share)]
    # Prefixes are shared within a group only, and whatever the budget: it stays whole.
    whole = sum(row.length for row in rows) + 1
    return [_units(input_ids, group, budget=whole, share=share) for group in _groups(rows, together)]


def _groups(rows: list[_Row], together: int) -> list[list[_Row]]:
    return [list(group) for _, group in groupby(rows, key=lambda row: row.row // together)]


def _padded_bins(rows: list[_Row], budget: int, together: int) -> Iterable[tuple[Bundle, int]]:
    """Rows for each micro-batch, and the width that all of them are padded to. Like lengths go together."""
    members: list[_Row] = []
    width = 0  # of the longest row, which comes first
    for group in sorted(_groups(rows, together), key=lambda group: -max(row.length for row in group)):
        if members and width * (len(members) + len(group)) > budget:
            yield [_Unit(0, (row,)) for row in members], width
            members = []
        if not members:
            width = max(row.length for row in group)
        members += group
    if members:
        yield [_Unit(0, (row,)) for row in members], width


def _units(input_ids: npt.NDArray[np.int32], rows: list[_Row], *, budget: int, share: bool) -> list[_Unit]:
    if not share:
        return [_Unit(0, (row,)) for row in rows]
    # Big-endian bytes sort as the tokens do, so rows with a common beginning become neighbours.
    tokens = {row.row: input_ids[row.start : row.start + row.length] for row in rows}
    rows = sorted(rows, key=lambda row: tokens[row.row].astype(">i4").tobytes())
    common = [_common_prefix(tokens[a.row], tokens[b.row]) for a, b in pairwise(rows)]
    groups = _best_groups(0, len(rows), common, depth=0)[1] if rows else []
    return [unit for first, last, prefix in groups for unit in _split_group(rows[first:last], prefix, budget)]


def _common_prefix(left: npt.NDArray[np.int32], right: npt.NDArray[np.int32]) -> int:
    shorter = min(len(left), len(right))
    differ = np.flatnonzero(left[:shorter] != right[:shorter])
    return int(differ[0]) if len(differ) else shorter


def _best_groups(first: int, last: int, common: Sequence[int], *, depth: int) -> tuple[int, list[tuple[int, int, int]]]:
    """Tokens saved, and groups (first, last, prefix), for sorted rows [first, last).

    Either all of them share their common prefix, or they fall apart where the neighbours' common prefix is
    shortest, and each part does its best: a chat template in common does not hide the prompts below it.
    """
    if last - first == 1:
        return 0, [(first, last, 0)]
    prefix = min(common[first : last - 1])
    saved = (last - first - 1) * prefix if prefix >= MIN_SHARED_PREFIX else 0
    apart, groups, start = 0, list[tuple[int, int, int]](), first
    if depth < MAX_DEPTH:
        for end in [*(i + 1 for i in range(first, last - 1) if common[i] == prefix), last]:
            below, found = _best_groups(start, end, common, depth=depth + 1)
            apart, groups, start = apart + below, groups + found, end
    if depth == MAX_DEPTH or saved >= apart > 0 or (saved and not apart):
        return saved, [(first, last, prefix if saved else 0)]
    return apart, groups


def _split_group(rows: Sequence[_Row], prefix: int, budget: int) -> Iterable[_Unit]:
    """A group too large for one micro-batch becomes several, each with its own copy of the prefix."""
    if not prefix:
        yield from (_Unit(0, (row,)) for row in rows)
        return
    for members in first_fit_decreasing([row.length - prefix for row in rows], max(budget - prefix, 1)):
        yield _Unit(prefix if len(members) > 1 else 0, tuple(rows[i] for i in sorted(members)))


def _lay_out(input_ids: npt.NDArray[np.int32], units: Sequence[_Unit], width: int = 0) -> MicroBatch:
    """`width`: pad each row to it, with repeats of its first token that nothing looks at."""
    taken: list[Ints] = []  # flat batch positions of the packed tokens, run by run
    positions: list[Ints] = []
    segments: list[tuple[int, int, int, int]] = []
    hidden: list[Ints] = []
    source: list[Ints] = []
    rows: list[Ints] = []
    row_ids: list[int] = []
    size = 0

    def append(start: int, first: int, last: int, prefix: tuple[int, int]) -> int:
        """One segment: tokens [first, last) of the row at `start`; returns its packed position."""
        nonlocal size
        at = size
        padding = max(0, width - (last - first))
        taken.append(np.concatenate((np.arange(start + first, start + last), np.full(padding, start))))
        positions.append(np.arange(first, last + padding))
        segments.append((at, last - first + padding, *prefix))
        size += last - first + padding
        return at

    for unit in units:
        prefix_at = append(unit.rows[0].start, 0, unit.prefix, (0, 0)) if unit.prefix else 0
        for row in unit.rows:
            own_at = size
            if row.length > unit.prefix:
                append(row.start, unit.prefix, row.length, (prefix_at, unit.prefix))
            in_prefix = row.scored < unit.prefix
            hidden.append(np.where(in_prefix, prefix_at + row.scored, own_at + row.scored - unit.prefix))
            source.append(row.start + row.scored)
            rows.append(np.full(len(row.scored), len(row_ids), np.int64))
            row_ids.append(row.row)
    columns = np.array(segments, np.int64).reshape(-1, 4).T
    scored = np.concatenate(source)
    return MicroBatch(
        tokens=input_ids[np.concatenate(taken)].astype(np.int64),
        positions=np.concatenate(positions),
        segments=Segments(*(np.ascontiguousarray(column) for column in columns)),
        hidden=np.concatenate(hidden),
        labels=input_ids[scored + 1].astype(np.int64),
        source=scored,
        rows=np.concatenate(rows),
        row_ids=np.array(row_ids, np.int64),
    )
