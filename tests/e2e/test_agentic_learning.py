"""An agent with a tool learns, over the wire: openai's client in rollouts, to_training_batch, fwd_bwd, step, sync.

The example's loop in a short form, on the tiny model: random weights that learn to ask for something, and to answer
with a number. It takes 3 to 5 steps to get there. All the while the tool is broken for one task of eight.
"""

from __future__ import annotations

import asyncio

import pytest

from gradwire.client import AsyncClient, Client
from lookup.task import Market, Task
from lookup.training import AgenticGrpo, Record, Sizes
from tests.e2e.conftest import TrainerFactory
from tests.originals import sync_originals
from tests.serving import ServerProcess

BROKEN = "a"  # an item that is trained on, and never measured with
SIZES = Sizes(steps=6, tasks=8, group=8, held_out=48, evaluate_every=6)


@pytest.mark.slow
def test_an_agent_learns_to_use_its_tool(
    server: ServerProcess,
    client: Client,
    make_trainer: TrainerFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Task.told

    def broken(task: Task, item: str) -> str:
        if task.item == BROKEN:
            raise RuntimeError("the tool is down")
        return told(task, item)

    monkeypatch.setattr(Task, "told", broken)
    trainer = make_trainer(optimizer={"name": "adamw", "learning_rate": 2e-4}, max_grad_norm=1.0)
    sync_originals(client, trainer)
    records: list[Record] = []

    async def learn() -> tuple[float, float]:
        async with AsyncClient(server.address, timeout=120.0) as connected:
            return await AgenticGrpo(connected, trainer, Market.of_letters(), SIZES, records.append).run()

    before, after = asyncio.run(learn())
    assert before < 0.2 and after > before + 0.2, records
    steps = [record for record in records if record["kind"] == "step"]
    assert steps[0]["looked_up"] < 0.7 and steps[-1]["looked_up"] > 0.7, records
    # What was recorded is exactly what was sampled, by the weights that the trainer holds.
    assert all(record["ratio_max"] < 1.001 for record in steps)
    # Runs that the broken tool ended are left out, each with its reason, and those only.
    failures = [record for record in records if record["kind"] == "failure"]
    assert {record["error"] for record in failures} == {"RuntimeError: the tool is down"}
    for record in steps:
        dropped = sum(failure["step"] == record["step"] for failure in failures)
        assert (record["rows"], record["dropped"]) == (64 - dropped, dropped)
