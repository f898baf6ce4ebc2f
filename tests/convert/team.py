"""Runs with AgileRL and PettingZoo: a game of two, and IPPO's agents for it.

`python -m tests.convert.team make FOLDER` saves the agents and prints the episodes that they play as they are.
`python -m tests.convert.team play ADDRESS` prints the episodes that they play as the server's deployment "team".
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

TEAM = ("hunter_0", "prey_0")
SIZE, STEPS, SEEDS = 9, 30, (1, 2, 3)


class Chase(ParallelEnv[str, Any, int]):
    """On a line: the hunter wants to be near, the prey far. Steps off the line are masked.

    On every fifth step the environment moves the prey: its action is defined, whatever the policy says.
    """

    metadata = {"name": "chase"}  # noqa: RUF012 (PettingZoo's)
    possible_agents = list(TEAM)  # noqa: RUF012

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-1.0, 1.0, (3,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents, self.time = list(TEAM), 0
        self.places = dict(zip(TEAM, np.random.default_rng(seed).integers(0, SIZE, 2).tolist(), strict=True))
        return self._seen()

    def step(self, actions: dict[str, int]) -> Any:
        _, infos = self._seen()
        for agent, action in actions.items():
            assert infos[agent]["action_mask"][action] == 1, f"{agent} takes {action}, which is masked"
            self.places[agent] += action - 1
        dictated = infos["prey_0"]["env_defined_actions"]
        assert dictated is None or actions["prey_0"] == dictated
        self.time += 1
        distance = abs(self.places["hunter_0"] - self.places["prey_0"]) / SIZE
        over = self.time == STEPS
        observations, infos = self._seen()
        rewards = {"hunter_0": -distance + 0.01 * self.places["hunter_0"], "prey_0": distance}
        return observations, rewards, dict.fromkeys(TEAM, False), dict.fromkeys(TEAM, over), infos

    def _seen(self) -> tuple[dict[str, Any], dict[str, Any]]:
        first, second = (self.places[agent] / (SIZE - 1) * 2 - 1 for agent in TEAM)
        seen = np.array([first, second, self.time / STEPS], np.float32)
        infos: dict[str, Any] = {}
        for agent in TEAM:
            place = self.places[agent]
            mask = np.array([place > 0, True, place < SIZE - 1], np.int8)
            infos[agent] = {"action_mask": mask, "env_defined_actions": None}
        if self.time % 5 == 4:
            infos["prey_0"]["env_defined_actions"] = np.array(0 if self.places["prey_0"] > 0 else 1)
        return {"hunter_0": seen, "prey_0": seen[[1, 0, 2]]}, infos


Act = Callable[[dict[str, Any], dict[str, Any]], dict[str, int]]


def episodes(act: Act) -> list[Any]:
    """Of each seed: every agent's return, and all that was done."""
    found = []
    for seed in SEEDS:
        environment = Chase()
        observations, infos = environment.reset(seed=seed)
        returns, done, over = dict.fromkeys(TEAM, 0.0), [], False
        while not over:
            actions = act(observations, infos)
            done.append([actions[agent] for agent in TEAM])
            observations, rewards, _, truncations, infos = environment.step(actions)
            returns = {agent: returns[agent] + rewards[agent] for agent in TEAM}
            over = all(truncations.values())
        found.append([returns, done])
    return found


def make(folder: str) -> None:
    import torch
    from agilerl.algorithms import IPPO

    torch.manual_seed(3)
    chase = Chase()
    of = [chase.observation_space(agent) for agent in TEAM], [chase.action_space(agent) for agent in TEAM]
    ippo = IPPO(*of, agent_ids=list(TEAM))
    ippo.set_training_mode(False)
    ippo.save_checkpoint(f"{folder}/team.pt")

    def act(observations: dict[str, Any], infos: dict[str, Any]) -> dict[str, int]:
        """The most likely of the actions that the masks allow: `get_action` itself draws one, of all of them."""
        ippo.get_action({agent: seen[None] for agent, seen in observations.items()})
        actions = {}
        for agent in TEAM:
            logits = ippo.actors[ippo.get_network_id(agent)].head_net.dist.logits.detach().numpy().reshape(-1)
            actions[agent] = int(np.where(infos[agent]["action_mask"] == 1, logits, -np.inf).argmax())
            dictated = infos[agent]["env_defined_actions"]
            if dictated is not None:
                actions[agent] = int(dictated)
        return actions

    print(json.dumps(episodes(act)))


def play(address: str) -> None:
    from gradwire.client import Client

    with Client(address, timeout=60.0) as client:

        def act(observations: dict[str, Any], infos: dict[str, Any]) -> dict[str, int]:
            dictated = {agent: info["env_defined_actions"] for agent, info in infos.items()}
            result = client.inference.get_action(
                observations,
                action_mask={agent: info["action_mask"] for agent, info in infos.items()},
                env_defined_actions={agent: given for agent, given in dictated.items() if given is not None} or None,
                deterministic=True,
                deployment_id="team",
            )
            assert isinstance(result.action, dict)
            return {agent: int(np.asarray(action)) for agent, action in result.action.items()}

        print(json.dumps(episodes(act)))


if __name__ == "__main__":
    {"make": make, "play": play}[sys.argv[1]](sys.argv[2])
