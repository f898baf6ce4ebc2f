"""Runs in a process of its own: trains a policy briefly, saves it, and plays episodes with it as its library does.

`python -m tests.convert.trained NAME FOLDER` leaves NAME's checkpoint in FOLDER and prints the returns of its episodes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

ENVIRONMENTS = {"cartpole": "CartPole-v1", "pendulum": "Pendulum-v1"}
SEEDS = (11, 12, 13)


def cartpole(environment: Any) -> Any:
    from stable_baselines3 import PPO

    return PPO("MlpPolicy", environment, n_steps=512, batch_size=128, learning_rate=1e-3, seed=1).learn(5120)


def pendulum(environment: Any) -> Any:
    from stable_baselines3 import SAC

    options: Any = {"learning_rate": 3e-3, "batch_size": 64, "buffer_size": 5000, "gamma": 0.98, "seed": 1}
    return SAC("MlpPolicy", environment, policy_kwargs={"net_arch": [64, 64]}, **options).learn(3000)


def episode(environment: Any, seed: int, act: Any) -> float:
    """The return of an episode, undiscounted."""
    observation, _ = environment.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = environment.step(act(observation))
        total, over = total + float(reward), terminated or truncated
    return total


def main(name: str, folder: Path) -> None:
    import torch

    torch.set_num_threads(1)  # as small as it is, more would only wait for each other
    environment = gymnasium.make(ENVIRONMENTS[name])
    model = {"cartpole": cartpole, "pendulum": pendulum}[name](environment)
    model.save(folder / f"{name}.zip")

    def act(observation: Any) -> Any:
        return model.predict(np.asarray(observation), deterministic=True)[0]

    print(json.dumps([episode(environment, seed, act) for seed in SEEDS]))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
