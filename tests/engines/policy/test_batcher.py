"""Requests that arrive together share a run, and nobody can tell from the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwire.server.engines.policy.batcher import BatchLimits
from gradwire.server.engines.policy.engine import PolicyEngine, PolicyOptions
from gradwire.server.engines.policy.network import RunError
from gradwire.server.errors import FailedPrecondition, ResourceExhausted, Unavailable
from tests.engines.policy.support import box, linear, network, spec_of, write

F32 = np.float32
LIMITS = BatchLimits(max_batch_rows=32, max_queued_rows=256)


@pytest.fixture(params=["on the loop", "in a thread"])
async def engine(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[PolicyEngine]:
    folder = write(tmp_path / "bundle", {"policy": network(box(3), "clipped_gaussian", box(2))})
    made = await PolicyEngine.load(folder, PolicyOptions(batching=LIMITS))
    made._batchers["policy"]._fast_rows = 10**6 if request.param == "on the loop" else 0
    yield made
    await made.close()


def observations(rows: int) -> Any:
    return np.random.default_rng(0).normal(size=(rows, 3)).astype(F32)


async def test_a_crowd_gets_what_each_would_alone(engine: PolicyEngine) -> None:
    seen = observations(40)
    alone: Any = [(await engine.act(row, seed=i)).action for i, row in enumerate(seen)]
    before = engine._batchers["policy"].runs
    crowd: Any = await asyncio.gather(*(engine.act(row, seed=i) for i, row in enumerate(seen)))
    # 40 rows at 32 a run; whoever comes first, and whoever is held up then, runs alone.
    assert engine._batchers["policy"].runs - before < 20
    np.testing.assert_allclose([found.action for found in crowd], alone, rtol=1e-5, atol=1e-6)


async def test_batches_of_several_sizes_are_joined_and_parted(engine: PolicyEngine) -> None:
    sizes = [1, 30, 5, 100, 2]
    parts = [observations(size) + size for size in sizes]
    found: Any = await asyncio.gather(*(engine.act(part, batched=True, deterministic=True) for part in parts))
    spec = spec_of(engine.manifest)
    for part, actions in zip(parts, found, strict=True):
        np.testing.assert_allclose(actions.action, linear(spec, {"obs": part})["mean"], rtol=1e-4, atol=1e-5)


async def test_those_in_company_wait_for_each_other(engine: PolicyEngine) -> None:
    """Callers that ask again and again, each a little after its answer, still share runs."""
    batcher = engine._batchers["policy"]

    async def caller(row: Any) -> None:
        for _ in range(20):
            await engine.act(row, deterministic=True)
            await asyncio.sleep(0)

    before = batcher.runs
    await asyncio.gather(*(caller(row) for row in observations(8)))
    assert batcher.runs - before < 60, "160 requests, 8 at a time"


async def test_who_leaves_disturbs_nobody(engine: PolicyEngine) -> None:
    seen = observations(20)
    tasks = [asyncio.create_task(engine.act(row, deterministic=True)) for row in seen]
    await asyncio.sleep(0)
    # Whoever came a moment after the others, as the first one does, may have its answer by now.
    left = [task for task in tasks[1::2] if task.cancel()]
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert left and all(task.cancelled() for task in left)
    wanted = linear(spec_of(engine.manifest), {"obs": seen})["mean"]
    for outcome, action in zip(found[::2], wanted[::2], strict=True):
        assert not isinstance(outcome, BaseException)
        np.testing.assert_allclose(np.asarray(outcome.action), action, rtol=1e-4, atol=1e-5)
    assert engine._batchers["policy"]._queued_rows == 0


async def test_a_full_queue_refuses(engine: PolicyEngine) -> None:
    tasks = [asyncio.create_task(engine.act(observations(100), batched=True)) for _ in range(3)]
    found = await asyncio.gather(*tasks, return_exceptions=True)
    refused = [outcome for outcome in found if isinstance(outcome, ResourceExhausted)]
    assert len(refused) == 1 and refused[0].reason == "POLICY_BUSY" and refused[0].retry_after
    assert (await engine.act(observations(1)[0])).action is not None


async def test_one_bad_run_fails_only_its_own(engine: PolicyEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime fails on one caller's rows; the others of that run are run again."""
    ours = engine._networks["policy"]
    real = ours.run

    def run(feeds: Any) -> Any:
        if (feeds["obs"] == 77.0).any():
            raise RunError("network policy failed: out of memory")
        return real(feeds)

    monkeypatch.setattr(ours, "run", run)
    seen = observations(5)
    seen[2] = 77.0
    found = await asyncio.gather(*(engine.act(row) for row in seen), return_exceptions=True)
    assert [isinstance(outcome, FailedPrecondition) for outcome in found] == [False, False, True, False, False]


async def test_closing_answers_what_has_begun(tmp_path: Path) -> None:
    folder = write(tmp_path / "bundle", {"policy": network(box(3), "clipped_gaussian", box(2))})
    engine = await PolicyEngine.load(folder)
    tasks = [asyncio.create_task(engine.act(row)) for row in observations(10)]
    await asyncio.sleep(0)
    await engine.close()
    assert all(task.result().action is not None for task in tasks)
    with pytest.raises(Unavailable, match="removed or replaced"):
        await engine.act(observations(1)[0])
    await engine.close()


async def test_who_is_alone_when_the_policy_closes_is_refused(engine: PolicyEngine) -> None:
    asking = asyncio.create_task(engine.act(observations(1)[0]))
    await asyncio.sleep(0)  # it is in the middle of its call
    await engine.close()
    async with asyncio.timeout(5):
        found = await asyncio.gather(asking, return_exceptions=True)
    assert isinstance(found[0], Unavailable) or found[0].action is not None  # type: ignore[union-attr]
