"""`to_training_batch`: from runs of agents to the batch of a forward and backward pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gradwire.client.agentic.outcomes import POLICY_OUTCOMES, Outcome, outcome_of
from gradwire.client.agentic.training.advantages import Baseline, Float64Array, Scale
from gradwire.client.agentic.training.columns import KeptRow, trainable, training_batch
from gradwire.client.agentic.training.credit import advantages_of, spread
from gradwire.client.agentic.training.options import Mode, Options, StepBaseline
from gradwire.client.agentic.training.ordering import in_order
from gradwire.client.agentic.training.result import AgentBatch, BatchStats, DroppedRow, DropReason, RowOrigin
from gradwire.client.agentic.training.rollouts import samples_of_rollouts
from gradwire.client.agentic.training.samples import Sample, SampleRow, sample_of
from gradwire.client.agentic.trajectory import Trajectory
from gradwire.client.types.rollouts import CollectedRollout


def to_training_batch(
    trajectories: Iterable[Trajectory | Sample | CollectedRollout],
    *,
    mode: Mode = "token",
    group_size: int | None = None,
    groups: Sequence[Hashable] | None = None,
    outcomes: Mapping[int, str] | None = None,
    baseline: Baseline = "mean",
    scale: Scale = "std",
    gamma: float | None = 1.0,
    step_baseline: StepBaseline = "turn",
    mask_truncated: bool = False,
    mask_constrained: bool = False,
    drop_uniform: bool = False,
    max_row_tokens: int | None = None,
    min_weight_version: int | None = None,
) -> AgentBatch:
    """The batch that `client.training.fwd_bwd` takes, with an account of what is not in it.

    Tokens are trained on exactly as they were sampled, where the mask says so; what tools and prompts wrote is
    context. Rows are ordered by idx. Columns: input_ids, loss_mask, advantages, prompt_group_ids (the number of the
    row's group), and old_log_probs_shifted and versions where all rows have them; entry i of a column belongs to the
    prediction of token i + 1.

    Each run is compared with the other runs on its task. Only what the policy itself brought about is: runs that
    ended "ok" or "truncated". The others are dropped, with their outcome as the reason, and no group's statistics
    know of them. A group of one, or of equals, has advantages of exactly 0.

    Args:
        trajectories: in any order; each idx once. Or what `client.rollouts.collect` gives, whole groups: those have
            groups and outcomes of their own, and are ordered by group and sample_index.
        mode: "token" gives every trained token the advantage of its run's reward. "step" gives it that of the
            return of the turn that sampled it: G_t = r_t + gamma G_{t+1} with r_t the turn's reward. In a run whose
            turns have no reward the last one has the run's. Needs StepTrajectory, or rollouts.
        group_size: runs of a task, which stand together: the task of idx i is i // group_size, and all are there.
        groups: the task of each idx, as anything hashable. Without both, each trajectory's own `group`.
        outcomes: how runs ended, by idx, in place of their own `outcome`; also of runs that left no trajectory.
        baseline: "mean" of the group, or "leave_one_out": of the other runs (RLOO, arXiv 2402.14740).
        scale: "std" divides by the group's standard deviation + 1e-6 (GRPO, arXiv 2402.03300); "none" does not
            (Dr. GRPO, arXiv 2503.20783). `group_advantages` has the formulas.
        gamma: discount of a turn's return, 0 to 1. None: the steps' own `mc_return`, as it stands.
        step_baseline: with mode "step", a turn's return is compared with the same "turn" of the group's runs (what
            only one run reached has advantage 0), or with all turns of the "task".
        mask_truncated: do not train runs that were truncated; they still count in their group (the overlong
            filter of DAPO, arXiv 2503.14476).
        mask_constrained: do not train what rollouts sampled under a grammar (a JSON schema, a tool call that was
            demanded). Default: it is trained, with the log-probs that it was sampled with as the old ones.
        drop_uniform: leave out groups whose advantages are all 0 (its dynamic sampling). Default: they stay, and
            count in what the loss is divided by.
        max_row_tokens: leave out longer rows; their runs still count.
        min_weight_version: leave out runs that older weights sampled a trained token of.

    Raises:
        TypeError: something is not a trajectory.
        ValueError: an idx is missing or there twice; a run has no group; lengths disagree, a mask is not 0 or 1, a
            number is not finite; only some rows have log-probs; options contradict each other. It names the idx.
    """
    options = Options(
        mode=mode,
        baseline=baseline,
        scale=scale,
        gamma=gamma,
        step_baseline=step_baseline,
        mask_truncated=mask_truncated,
        drop_uniform=drop_uniform,
        max_row_tokens=max_row_tokens,
        min_weight_version=min_weight_version,
    )
    told = {idx: outcome_of(outcome) for idx, outcome in (outcomes or {}).items()}
    runs = list(trajectories)
    rollouts = [run for run in runs if isinstance(run, CollectedRollout)]
    if rollouts:
        if len(rollouts) < len(runs) or group_size is not None or groups is not None or told:
            raise ValueError(
                "rollouts have groups and outcomes of their own: they go without trajectories, group_size, groups and "
                "outcomes"
            )
        samples = samples_of_rollouts(rollouts, mask_constrained=mask_constrained)
    else:
        own = [_sample(run, told) for run in runs]
        samples = in_order(own, group_size=group_size, groups=groups, outcomes=told)
    return _Assembly(samples, options).result()


def _sample(trajectory: object, outcomes: Mapping[int, Outcome]) -> Sample:
    if not isinstance(trajectory, Trajectory | Sample):
        raise TypeError(f"to_training_batch takes trajectories or rollouts, got {type(trajectory).__name__}")
    outcome = outcomes.get(trajectory.idx)
    if isinstance(trajectory, Trajectory):
        return sample_of(trajectory, outcome)
    return replace(trajectory, outcome=outcome or trajectory.outcome)


class _Assembly:
    """Decides what becomes of each row."""

    def __init__(self, samples: list[Sample], options: Options) -> None:
        self._samples, self._options = samples, options
        self._dropped: list[DroppedRow] = []
        self._kept: list[KeptRow] = []
        self._origins: list[RowOrigin] = []
        reasons = {sample.idx: self._uncounted(sample) for sample in samples}
        self._counted = [sample for sample in samples if reasons[sample.idx] is None]
        self._advantages = advantages_of(self._counted, options)
        self._groups = {group: number for number, group in enumerate(dict.fromkeys(s.group for s in self._counted))}
        lively = {s.group for s, own in zip(self._counted, self._advantages, strict=True) if own.any()}
        self._uniform = self._groups.keys() - lively
        advantages = iter(self._advantages)
        for sample in samples:
            reason = reasons[sample.idx]
            if reason is None:
                self._add_rows(sample, next(advantages))
            else:
                self._drop(sample, None, *reason)

    def result(self) -> AgentBatch:
        batch = training_batch(self._kept) if self._kept else None
        return AgentBatch(batch, tuple(self._origins), tuple(self._dropped), self._stats())

    def _uncounted(self, sample: Sample) -> tuple[DropReason, str] | None:
        """Why a run is not compared with others; None when it is."""
        if sample.outcome not in POLICY_OUTCOMES:
            return DropReason(sample.outcome), f"the run ended with {sample.outcome}"
        if sample.reward is None:
            return DropReason.NO_REWARD, "the run has no reward"
        least = self._options.min_weight_version
        if least is None:
            return None
        for row in sample.rows:
            if row.versions is None:
                raise ValueError(f"idx {sample.idx} does not say which weights sampled it: min_weight_version needs it")
            oldest = row.versions[trainable(row)].min(initial=least)
            if oldest < least:
                return DropReason.STALE, f"a trained token is of weight version {oldest}, older than {least}"
        return None

    def _add_rows(self, sample: Sample, advantages: Float64Array) -> None:
        for reason, detail in sample.dropped:
            self._drop(sample, None, reason, detail)
        if not sample.rows and not sample.dropped:
            self._drop(sample, None, DropReason.NOTHING_TRAINED, "the model was not called")
        for number, row in enumerate(sample.rows):
            undesired = self._undesired(sample, row)
            if undesired is not None:
                self._drop(sample, number, *undesired)
                continue
            own = spread(advantages, row.steps if self._options.mode == "step" else None, len(row.token_ids))
            self._kept.append(KeptRow(sample.idx, number, self._groups[sample.group], row, own))
            assert sample.reward is not None  # it counts
            count = int(trainable(row).sum())
            self._origins.append(RowOrigin(sample.idx, number, sample.group, sample.reward, count, sample.name))

    def _drop(self, sample: Sample, row: int | None, reason: DropReason, detail: str) -> None:
        self._dropped.append(DroppedRow(sample.idx, row, reason, detail, sample.name))

    def _undesired(self, sample: Sample, row: SampleRow) -> tuple[DropReason, str] | None:
        """Why a row of a run that counts is not trained; None when it is."""
        options, width = self._options, len(row.token_ids)
        if row.abandoned:
            return DropReason.ABANDONED, "nobody went on from it"
        if not trainable(row).any():
            return DropReason.NOTHING_TRAINED, "no token of it is to be trained"
        if options.mask_truncated and sample.outcome is Outcome.TRUNCATED:
            return DropReason.TRUNCATED, "the run was truncated"
        if options.max_row_tokens is not None and width > options.max_row_tokens:
            return DropReason.TOO_LONG, f"{width} tokens, more than {options.max_row_tokens}"
        if options.drop_uniform and sample.group in self._uniform:
            return DropReason.UNIFORM_GROUP, "nothing in its group is better than anything else"
        return None

    def _stats(self) -> BatchStats:
        sizes = Counter(sample.group for sample in self._counted)
        rewards = np.array([sample.reward for sample in self._counted], np.float64)
        spread_of = float(rewards.std(ddof=1)) if len(rewards) > 1 else 0.0
        measured = bool(len(rewards))
        return BatchStats(
            num_samples=len(self._samples),
            num_counted=len(self._counted),
            outcomes=dict(Counter(str(sample.outcome) for sample in self._samples)),
            num_groups=len(self._groups),
            num_single_groups=sum(size == 1 for size in sizes.values()),
            num_uniform_groups=len(self._uniform),
            num_rows=len(self._kept),
            num_dropped_rows=len(self._dropped),
            num_tokens=sum(len(row.tokens.token_ids) for row in self._kept),
            num_trained_tokens=sum(origin.num_trained for origin in self._origins),
            reward_mean=float(rewards.mean()) if measured else None,
            reward_std=spread_of if measured else None,
            reward_min=float(rewards.min()) if measured else None,
            reward_max=float(rewards.max()) if measured else None,
        )
