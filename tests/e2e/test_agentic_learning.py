"""An agent with a tool learns, over the wire: openai's client in rollouts, to_training_batch, fwd_bwd, step, sync.

The example's loop in a short form, on the tiny model: random weights that learn to ask for something, and to answer
with a number. It takes 3 to 5 steps to get there.
"""

from __future__ import annotations

import asyncio

import pytest

from gradwire.client import AsyncClient, Client
from lookup.task import Market
from lookup.training import AgenticGrpo, Record, Sizes
from tests.e2e.conftest import TrainerFactory, sync_originals
from tests.serving import ServerProcess

SIZES = Sizes(steps=6, tasks=8, group=8, held_out=48, evaluate_every=6)


@pytest.mark.slow
def test_an_agent_learns_to_use_its_tool(
    server: ServerProcess, client: Client, make_trainer: TrainerFactory, restore: None
) -> None:
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
    # What was recorded is exactly what was sampled, by the weights that the trainer holds: whole runs, nothing lost.
    assert all(record["rows"] == 64 and record["dropped"] == 0 for record in steps)
    assert all(record["ratio_max"] < 1.001 for record in steps)
    assert client.rollouts.collect() == ()  # nor left on the server
