"""Policies from their training to the wire: what they earn as deployments is what they earn where they were trained."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from gradwire.client import AsyncClient
from tests.convert.test_command import gradwire
from tests.convert.test_parity import AGILERL, ROOT
from tests.convert.trained import ENVIRONMENTS, SEEDS
from tests.rpc.support import serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
# Below the first none of the seeds falls by chance, nor above the second: the policies have learnt.
LEARNT = {"cartpole": 200.0, "pendulum": -500.0}


async def run(python: str, *arguments: object) -> Any:
    """The JSON that a script of this folder prints last."""
    path = os.pathsep.join(str(ROOT / part) for part in ("", "gen", "client_py", "server"))
    ran = await asyncio.create_subprocess_exec(
        python, "-m", *map(str, arguments), env={**os.environ, "PYTHONPATH": path},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, error = await ran.communicate()
    assert ran.returncode == 0, error.decode()[-4000:]
    return json.loads(out.splitlines()[-1])


async def convert(source: Path, out: Path, *options: object) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    made = await asyncio.to_thread(gradwire, "convert", source, out, *options)
    assert made.returncode == 0, made.stderr


async def episode(client: AsyncClient, name: str, seed: int) -> float:
    """The return of an episode whose actions the server chooses."""
    environment = gymnasium.make(ENVIRONMENTS[name])
    observation, _ = environment.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        found = await client.inference.get_action(observation, deterministic=True, deployment_id=name)
        action = np.asarray(found.action)
        observation, reward, terminated, truncated, _ = environment.step(int(action) if action.ndim == 0 else action)
        total, over = total + float(reward), terminated or truncated
    return total


@pytest.mark.parametrize("name", ENVIRONMENTS)
async def test_a_trained_policy_earns_the_same_when_it_is_deployed(name: str, tmp_path: Path) -> None:
    wanted = await run(sys.executable, "tests.convert.trained", name, tmp_path)
    assert min(wanted) > LEARNT[name]
    async with serving(tmp_path) as served, AsyncClient(served.app.grpc_address) as client:
        await convert(tmp_path / f"{name}.zip", served.app.settings.bundles / name)
        await client.deployments.deploy_policy(name, name)
        found = [await episode(client, name, seed) for seed in SEEDS]
    # Real actions differ by float rounding, which an episode adds up.
    assert found == (wanted if name == "cartpole" else pytest.approx(wanted, rel=1e-3))


async def test_a_team_earns_the_same_with_masks_and_actions_of_the_environment(tmp_path: Path) -> None:
    if not AGILERL.exists():
        pytest.skip("AgileRL is not installed: make agilerl")
    wanted = await run(str(AGILERL), "tests.convert.team", "make", tmp_path)
    async with serving(tmp_path) as served, AsyncClient(served.app.grpc_address) as client:
        await convert(tmp_path / "team.pt", served.app.settings.bundles / "team", "--python", AGILERL)
        await client.deployments.deploy_policy("team", "team")
        status = await client.inference.get_status()
        assert set(status.agent.agent_ids) == {"hunter_0", "prey_0"} and status.agent.supports_action_mask
        found = await run(str(AGILERL), "tests.convert.team", "play", served.app.grpc_address)
    assert found == wanted
    assert len({tuple(actions) for _, done in found for actions in done}) > 1  # it is not one action for ever
