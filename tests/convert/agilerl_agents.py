"""Agents of AgileRL for the tests, with what `get_action` does. Imported by recording.py only.

Its stochastic policies know no most likely action: recorded is the distribution that `get_action` drew from.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from agilerl.algorithms import CQN, DDPG, DQN, IPPO, MADDPG, MATD3, PPO, TD3, RainbowDQN
from gymnasium import spaces

from tests.convert.recording import ROWS, Recorder

VECTOR = spaces.Box(-2, 2, (4,), np.float32)
IMAGE = spaces.Box(0, 255, (3, 32, 32), np.uint8)
MIXED = spaces.Dict({"kind": spaces.Discrete(4), "vector": VECTOR})
CHOICE = spaces.Discrete(3)
REAL = spaces.Box(np.array([-1, -3], np.float32), np.array([2, 2], np.float32))
TEAM = ["speaker_0", "speaker_1", "listener_0"]
LSTM = {"encoder_config": {"hidden_state_size": 8}}

VALUES: dict[str, Callable[[], Any]] = {
    "dqn": lambda: DQN(VECTOR, CHOICE),
    "dqn_dict": lambda: DQN(MIXED, CHOICE),
    "cqn": lambda: CQN(VECTOR, CHOICE),
    "rainbow": lambda: RainbowDQN(VECTOR, CHOICE),
}
ACTORS: dict[str, Callable[[], Any]] = {"ddpg": lambda: DDPG(VECTOR, REAL), "td3": lambda: TD3(VECTOR, REAL)}
POLICIES: dict[str, Callable[[], Any]] = {
    "ppo": lambda: PPO(VECTOR, CHOICE),
    "ppo_real": lambda: PPO(VECTOR, REAL),
    "ppo_image": lambda: PPO(IMAGE, spaces.MultiDiscrete([2, 3])),
    "ppo_bits": lambda: PPO(spaces.Discrete(5), spaces.MultiBinary(3)),
}
TEAMS: dict[str, Callable[[], Any]] = {
    f"{algorithm.__name__.lower()}{suffix}": partial(algorithm, [VECTOR] * 3, [action] * 3, agent_ids=TEAM)
    for algorithm in (MADDPG, MATD3, IPPO)
    for suffix, action in (("", CHOICE), ("_real", REAL))
}


def record_all(folder: Path) -> None:
    """Makes, records and converts them all."""
    torch.manual_seed(0)
    for name, make in VALUES.items():
        agent, recorder = _made(folder, name, make)
        extra = {"training": False} if name == "rainbow" else {}
        recorder.record["action"] = agent.get_action(recorder.observation, **extra)
        mask = np.random.default_rng(0).permuted(np.tile([0, 1, 1], (ROWS, 1)), axis=1)
        recorder.record["mask"] = mask
        recorder.record["masked"] = np.asarray(agent.get_action(recorder.observation, action_mask=mask, **extra))
        recorder.finish(agent.save_checkpoint, ".pt")
    for name, make in ACTORS.items():
        agent, recorder = _made(folder, name, make)
        recorder.record["action"] = agent.get_action(recorder.observation, training=False)
        recorder.finish(agent.save_checkpoint, ".pt")
    for name, make in POLICIES.items():
        agent, recorder = _made(folder, name, make)
        agent.get_action(recorder.observation)
        recorder.record |= _drawn_from(agent.actor)
        recorder.finish(agent.save_checkpoint, ".pt")
    for shared in (True, False):
        _recurrent(folder, shared)
    for name, make in TEAMS.items():
        _team(folder, name, make)


def _made(folder: Path, name: str, make: Callable[[], Any]) -> tuple[Any, Recorder]:
    agent = make()
    agent.set_training_mode(False)
    return agent, Recorder(folder, name, agent.observation_space)


def _drawn_from(actor: Any) -> dict[str, Any]:
    drawn = actor.head_net.dist
    found = {"logits": drawn.logits, "mean": drawn.mu, "log_std": drawn.log_std}
    return {key: value.detach().numpy() for key, value in found.items() if value is not None}


def _recurrent(folder: Path, shared: bool) -> None:
    name = "ppo_recurrent_shared" if shared else "ppo_recurrent"

    def make() -> Any:
        return PPO(VECTOR, CHOICE, recurrent=True, num_envs=ROWS, net_config=LSTM, share_encoders=shared)

    agent, recorder = _made(folder, name, make)
    hidden, steps = agent.get_initial_hidden_state(ROWS), []
    for _ in range(4):  # the same observations, so that only the state differs
        *_, hidden = agent.get_action(recorder.observation, hidden_state=hidden)
        steps.append(_drawn_from(agent.actor)["logits"])
    recorder.record["steps"] = np.stack(steps)
    recorder.finish(agent.save_checkpoint, ".pt")


def _team(folder: Path, name: str, make: Callable[[], Any]) -> None:
    agent = make()
    agent.set_training_mode(False)
    recorder = Recorder(folder, name, spaces.Dict([(member, VECTOR) for member in TEAM]))
    logits: list[Any] = []
    for actor in agent.actors.values():
        for module in actor.modules():
            if type(module).__name__ == "GumbelSoftmax":
                module.register_forward_hook(lambda _, given, __: logits.append(given[0].numpy()))
    actions = agent.get_action(recorder.observation)[0]
    if logits:  # one entry a group of agents, whose rows follow each other
        rows = np.concatenate(logits).reshape(len(TEAM), ROWS, -1)
        recorder.record |= {f"logits.{member}": rows[i] for i, member in enumerate(TEAM)}
    elif name.startswith("ippo"):
        groups = dict.fromkeys(agent.get_network_id(member) for member in TEAM)
        rows_of = {group: _drawn_from(agent.actors[group]) for group in groups}
        key = "mean" if name.endswith("real") else "logits"
        rows = np.concatenate([found[key] for found in rows_of.values()]).reshape(len(TEAM), ROWS, -1)
        recorder.record |= {f"{key}.{member}": rows[i] for i, member in enumerate(TEAM)}
    else:
        recorder.record |= {f"action.{member}": actions[member] for member in TEAM}
    agent = make_again(agent)
    recorder.finish(agent.save_checkpoint, ".pt")


def make_again(agent: Any) -> Any:
    """The agent without the hooks, which a checkpoint cannot hold."""
    for actor in agent.actors.values():
        for module in actor.modules():
            module._forward_hooks.clear()
    return agent
