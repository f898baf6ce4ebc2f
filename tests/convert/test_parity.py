"""A converted policy does what its source does: the same actions, or the same distribution of them, on random input."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwire.server.engines.policy.engine import PolicyEngine
from gradwire.server.engines.policy.heads import choose

ROOT = Path(__file__).parents[2]
AGILERL = ROOT / ".venv-agilerl" / "bin" / "python"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SB3_NAMES = ["ppo", "ppo_image", "ppo_real", "ppo_sde", "ppo_normalized", "a2c", "dqn", "sac", "sac_sde", "td3", "ddpg"]
VALUES = ["dqn", "dqn_dict", "cqn", "rainbow", "ddpg", "td3", "ppo", "ppo_real", "ppo_image", "ppo_bits"]
TEAMS = ["maddpg", "maddpg_real", "matd3", "matd3_real", "ippo", "ippo_real"]


def recorded(python: str, library: str, folder: Path) -> Path:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "server")]),
        "OMP_NUM_THREADS": "2",
    }
    command = [python, "-m", "tests.convert.recording", library, str(folder)]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    return folder


@pytest.fixture(scope="module")
def sb3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(sys.executable, "stable_baselines3", tmp_path_factory.mktemp("sb3"))


@pytest.fixture(scope="module")
def agilerl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not AGILERL.exists():
        pytest.skip("AgileRL is not installed: make agilerl")
    return recorded(str(AGILERL), "agilerl", tmp_path_factory.mktemp("agilerl"))


class Record:
    """A bundle's engine, and what its source did."""

    def __init__(self, engine: PolicyEngine, record: dict[str, Any]) -> None:
        self.engine, self.record = engine, record
        parts = {key: value for key, value in record.items() if key.startswith("obs")}
        self.observation: Any = parts.get("obs")
        if self.observation is None:
            self.observation = {key.removeprefix("obs."): value for key, value in parts.items()}

    async def act(self, **more: Any) -> Any:
        return await self.engine.act(self.observation, batched=True, deterministic=True, **more)


async def load(folder: Path, name: str) -> Record:
    with np.load(folder / f"{name}.npz", allow_pickle=False) as record:
        return Record(await PolicyEngine.load(folder / name), dict(record))


def same(found: Any, wanted: Any) -> None:
    assert np.shape(found) == np.shape(wanted)
    np.testing.assert_allclose(np.asarray(found, np.float64), np.asarray(wanted, np.float64), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SB3_NAMES)
async def test_stable_baselines3(sb3: Path, name: str) -> None:
    it = await load(sb3, name)
    same((await it.act()).action, it.record["action"])
    # DDPG saves what a TD3 does.
    assert it.engine.manifest.algo == name.split("_")[0].upper().replace("DDPG", "TD3")
    one: Any = await it.engine.act(first(it.observation), deterministic=True)
    same(one.action, it.record["action"][0])
    await it.engine.close()


def first(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: value[0] for key, value in observation.items()}
    return observation[0]


def outputs(record: dict[str, Any], suffix: str = "") -> Iterator[tuple[str, Any]]:
    yield from ((key, record[key + suffix]) for key in ("logits", "mean", "log_std") if key + suffix in record)


@pytest.mark.parametrize("name", VALUES)
async def test_agilerl(agilerl: Path, name: str) -> None:
    it = await load(agilerl, name)
    found = (await it.act()).action
    if "action" in it.record:
        same(found, it.record["action"])
    else:
        spec = it.engine.manifest.networks["policy"]
        distribution = dict(outputs(it.record))
        assert spec.head and spec.action_space and distribution
        same(found, choose(spec.head, spec.action_space, distribution, None, None))
        ours = it.engine._networks["policy"].run(it.engine._feeds("policy", it.observation, True, "")[1])
        for key, wanted in distribution.items():
            same(ours[key], wanted)
    one: Any = await it.engine.act(first(it.observation), deterministic=True)
    same(one.action, found[0])
    if "mask" in it.record:
        same((await it.act(action_mask=it.record["mask"])).action, it.record["masked"])
        assert (it.record["masked"] != it.record["action"]).any()
    await it.engine.close()


@pytest.mark.parametrize("name", ["ppo_recurrent", "ppo_recurrent_shared"])
async def test_agilerl_recurrent(agilerl: Path, name: str) -> None:
    it = await load(agilerl, name)
    state: Any = None
    for logits in it.record["steps"]:
        found = await it.act(hidden_state=state)
        same(found.action, logits.argmax(axis=1))
        states = it.engine._networks["policy"].initial_state(len(logits)) if state is None else state
        feeds = {"obs": it.observation, **{f"state.{key}": value for key, value in states.items()}}
        same(it.engine._networks["policy"].run(feeds)["logits"], logits)
        state = found.hidden_state
    assert (it.record["steps"][0] != it.record["steps"][-1]).any()
    await it.engine.close()


@pytest.mark.parametrize("name", TEAMS)
async def test_agilerl_teams(agilerl: Path, name: str) -> None:
    it = await load(agilerl, name)
    assert set(it.engine.agent_ids) == {"speaker_0", "speaker_1", "listener_0"}
    found = (await it.act()).action
    for agent, action in found.items():
        if f"logits.{agent}" in it.record:
            same(action, it.record[f"logits.{agent}"].argmax(axis=1))
        elif f"mean.{agent}" in it.record:
            same(action, np.clip(it.record[f"mean.{agent}"], [-1, -3], [2, 2]))
        else:
            same(action, it.record[f"action.{agent}"])
    await it.engine.close()
