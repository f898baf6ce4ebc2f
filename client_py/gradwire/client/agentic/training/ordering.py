"""Puts runs in the order of their tasks, and checks that none is missing, there twice or in a wrong group."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import islice

from gradwire.client.agentic.outcomes import POLICY_OUTCOMES, Outcome
from gradwire.client.agentic.training.samples import Sample


def in_order(
    samples: Sequence[Sample],
    *,
    group_size: int | None,
    groups: Sequence[Hashable] | None,
    outcomes: Mapping[int, Outcome],
) -> list[Sample]:
    """Samples by idx, each with its group. One of `outcomes` may stand for a run that left nothing behind.

    ValueError for an idx that is there twice, out of range, or missing, and for runs whose group nobody tells.
    """
    by_idx: dict[int, Sample] = {}
    for sample in samples:
        if sample.idx in by_idx:
            raise ValueError(f"idx {sample.idx} is there twice; an idx is the place of one run in the list of tasks")
        by_idx[sample.idx] = sample
    for idx in outcomes.keys() - by_idx.keys():
        if outcomes[idx] in POLICY_OUTCOMES:
            raise ValueError(f"outcomes[{idx}] is {outcomes[idx].value!r}, but there is no trajectory of idx {idx}")
        by_idx[idx] = Sample(idx, None, outcomes[idx], None)
    expected = _expected(by_idx, group_size, groups)
    if expected is not None:
        _check_all_there(by_idx, expected)
    for idx, sample in by_idx.items():
        if groups is not None:
            sample.group = groups[idx]
        elif group_size is not None:
            sample.group = idx // group_size
        elif sample.group is None and sample.counts:
            raise ValueError(
                f"idx {idx} has no group: say which runs are of the same task by group_size (runs of a task stand "
                "together), by groups (the task of each idx), or by each trajectory's own group"
            )
    return [by_idx[idx] for idx in sorted(by_idx)]


def _expected(by_idx: Mapping[int, Sample], group_size: int | None, groups: Sequence[Hashable] | None) -> int | None:
    """How many runs there should be; None when nobody said."""
    if groups is not None:
        if group_size is not None:
            raise ValueError("group_size and groups are two ways to say the same; give one")
        return len(groups)
    if group_size is None:
        return None
    if not isinstance(group_size, int) or isinstance(group_size, bool) or group_size < 1:
        raise ValueError(f"group_size is {group_size!r}; it is an integer from 1")
    number = max(by_idx, default=-1) + 1
    return -(-number // group_size) * group_size


def _check_all_there(by_idx: Mapping[int, Sample], expected: int) -> None:
    beyond = sorted(idx for idx in by_idx if not 0 <= idx < expected)
    if beyond:
        raise ValueError(f"idx {beyond[0]} is out of range: there are {expected} tasks")
    count = expected - len(by_idx)
    if count:  # of an idx or a size that is a slip of the pen, it may be billions: they are not listed
        missing = list(islice((idx for idx in range(expected) if idx not in by_idx), 8))
        shown = ", ".join(map(str, missing)) + (", ..." if count > 8 else "")
        raise ValueError(
            f"{count} of {expected} runs are missing: idx {shown}. A run that failed is told in outcomes: "
            f'outcomes={{{missing[0]}: "env_error"}}'
        )
