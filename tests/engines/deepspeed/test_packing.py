"""Packing: nothing is lost, nothing is doubled, the budget holds, prompts are shared."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gradwire.server.engines.deepspeed.packing import MicroBatch, first_fit_decreasing, plan, split_rows
from gradwire.server.engines.training import TrainingBatch
from tests.engines.deepspeed.support import group_batch, random_batch, rows_batch

batches = st.builds(random_batch, st.integers(0, 10_000), st.integers(1, 9)) | st.builds(
    group_batch, st.integers(0, 10_000)
)


def planned(batch: TrainingBatch, budget: int, share: bool = True) -> list[MicroBatch]:
    assert batch.loss_mask is not None
    return plan(batch.input_ids, batch.row_offsets, batch.loss_mask, budget=budget, share_prefixes=share)


def visible(part: MicroBatch, position: int) -> list[int]:
    """Tokens that a packed position sees, in order, itself included."""
    segments = part.segments
    index = int(np.flatnonzero((segments.start <= position) & (position < segments.start + segments.length))[0])
    before, shared = int(segments.prefix_start[index]), int(segments.prefix_length[index])
    seen = [*range(before, before + shared), *range(int(segments.start[index]), position + 1)]
    return [int(token) for token in part.tokens[seen]]


@given(batch=batches, budget=st.integers(1, 120), share=st.booleans())
def test_every_scored_entry_sees_exactly_its_own_row(batch: TrainingBatch, budget: int, share: bool) -> None:
    assert batch.loss_mask is not None
    parts = planned(batch, budget, share)
    sources = np.concatenate([part.source for part in parts])
    assert sorted(sources) == list(np.flatnonzero(batch.loss_mask))
    for part in parts:
        for hidden, label, source, row in zip(part.hidden, part.labels, part.source, part.rows, strict=True):
            start = int(batch.row_offsets[part.row_ids[row]])
            assert visible(part, int(hidden)) == batch.input_ids[start : source + 1].tolist()
            assert part.positions[hidden] == source - start
            assert label == batch.input_ids[source + 1]


@given(batch=batches, budget=st.integers(1, 120))
def test_the_budget_holds_but_for_one_long_row(batch: TrainingBatch, budget: int) -> None:
    longest = int(np.diff(batch.row_offsets).max())
    for part in planned(batch, budget):
        assert len(part.tokens) <= max(budget, longest)


@given(batch=batches, budget=st.integers(1, 120), together=st.sampled_from([1, 2]))
def test_without_packing_each_row_is_its_own_padded_row(batch: TrainingBatch, budget: int, together: int) -> None:
    assert batch.loss_mask is not None
    parts = plan(batch.input_ids, batch.row_offsets, batch.loss_mask, budget=budget, packing=False, together=together)
    assert sorted(np.concatenate([part.source for part in parts])) == list(np.flatnonzero(batch.loss_mask))
    for part in parts:
        rows, widths = len(part.row_ids), set(part.segments.length.tolist())
        assert len(widths) == 1
        assert len(part.segments.start) == rows
        assert not part.segments.prefix_length.any()
        assert len(part.tokens) == rows * max(widths)
        assert len(part.tokens) <= budget or rows <= together
        for hidden, source, row in zip(part.hidden, part.source, part.rows, strict=True):
            start = int(batch.row_offsets[part.row_ids[row]])
            assert visible(part, int(hidden)) == batch.input_ids[start : source + 1].tolist()
            assert part.positions[hidden] == source - start


def test_a_shared_prompt_is_computed_once() -> None:
    batch = group_batch(3, prompts=2, samples=6)
    shared, apart = planned(batch, 10_000), planned(batch, 10_000, share=False)
    assert len(shared) == len(apart) == 1
    prompts = {bytes(batch.input_ids[s : s + 9]) for s in batch.row_offsets[:-1]}
    assert len(prompts) == 2
    saved = len(apart[0].tokens) - len(shared[0].tokens)
    assert saved >= 2 * 5 * 9  # five of six copies of two prompts of at least nine tokens


def test_prompts_are_found_without_a_mask_and_below_a_common_template() -> None:
    rng = np.random.default_rng(0)
    template = np.arange(10)
    rows = []
    for prompt in range(3):
        question = np.concatenate((template, np.full(20, 50 + prompt)))
        rows += [np.concatenate((question, [70 + sample], rng.integers(0, 256, 4))) for sample in range(5)]
    masks = [np.concatenate((np.ones(len(row) - 1), [0])) for row in rows]
    (part,) = planned(rows_batch(rows, masks, rng), 10_000)
    assert len(part.tokens) == 3 * (30 + 5 * 4)  # each row's own 5 tokens without the last


def test_rows_that_extend_each_other_without_end() -> None:
    long = np.arange(600) % 256
    rows = [long[:length] for length in range(9, 600, 2)]
    masks = [np.concatenate((np.ones(len(row) - 1), [0])) for row in rows]
    batch = rows_batch(rows, masks, np.random.default_rng(0))
    parts = planned(batch, 4000)
    assert sum(len(part.source) for part in parts) == int(sum(mask.sum() for mask in masks))


def test_equal_rows_are_computed_once() -> None:
    batch = rows_batch([np.arange(20)] * 4, [np.concatenate((np.ones(19), [0]))] * 4, np.random.default_rng(0))
    (part,) = planned(batch, 100)
    assert len(part.tokens) == 19
    assert len(part.source) == 4 * 19


def test_a_group_too_large_for_a_micro_batch_is_split_with_its_prompt() -> None:
    batch = group_batch(4, prompts=1, samples=12)
    parts = planned(batch, 45)
    assert len(parts) > 1
    assert sum(len(part.row_ids) for part in parts) == 12


def test_rows_without_a_scored_entry_cost_nothing() -> None:
    rng = np.random.default_rng(0)
    batch = rows_batch([np.arange(5), np.arange(7)], [np.zeros(5), np.array([0, 1, 1, 0, 0, 0, 0])], rng)
    (part,) = planned(batch, 100)
    assert part.row_ids.tolist() == [1]
    assert part.tokens.tolist() == [0, 1, 2]  # nothing after the last scored entry


@given(st.lists(st.integers(1, 50)), st.integers(1, 60))
def test_first_fit_places_each_item_once(sizes: list[int], capacity: int) -> None:
    bins = first_fit_decreasing(sizes, capacity)
    assert sorted(index for members in bins for index in members) == list(range(len(sizes)))
    for members in bins:
        assert sum(sizes[index] for index in members) <= capacity or len(members) == 1


@given(batch=batches, parts=st.integers(1, 4))
def test_ranks_get_every_scored_row_once(batch: TrainingBatch, parts: int) -> None:
    assert batch.loss_mask is not None
    shares = split_rows(batch.input_ids, batch.row_offsets, batch.loss_mask, parts)
    assert len(shares) == parts
    scored = {
        row
        for row in range(batch.num_rows)
        if batch.loss_mask[batch.row_offsets[row] : batch.row_offsets[row + 1]].any()
    }
    assert sorted(row for share in shares for row in share.tolist()) == sorted(scored)


def test_ranks_are_balanced() -> None:
    batch = random_batch(5, 64)
    assert batch.loss_mask is not None
    shares = split_rows(batch.input_ids, batch.row_offsets, batch.loss_mask, 2)
    tokens = [int(np.diff(batch.row_offsets)[share].sum()) for share in shares]
    assert max(tokens) < 1.1 * min(tokens)
