"""Agents of Stable-Baselines3 for the tests, with what `predict` answers. Imported by recording.py only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from tests.convert.recording import Recorder

IMAGE = spaces.Box(0, 255, (3, 36, 36), np.uint8)
VECTOR = spaces.Box(-2, 2, (5,), np.float32)
MIXED = spaces.Dict(
    {
        "vector": VECTOR,
        "discrete": spaces.Discrete(4),
        "image": IMAGE,
        "multi": spaces.MultiDiscrete([2, 3]),
        "bits": spaces.MultiBinary(3),
    }
)
REAL = spaces.Box(np.array([-1, -2], np.float32), np.array([1, 5], np.float32))
AGENTS: dict[str, tuple[str, str, Any, Any, dict[str, Any]]] = {
    "ppo": ("PPO", "MlpPolicy", VECTOR, spaces.Discrete(4), {}),
    "ppo_image": ("PPO", "CnnPolicy", IMAGE, spaces.MultiDiscrete([3, 2]), {}),
    "ppo_real": ("PPO", "MlpPolicy", spaces.Discrete(6), REAL, {}),
    "ppo_sde": ("PPO", "MlpPolicy", VECTOR, REAL, {"use_sde": True, "policy_kwargs": {"squash_output": True}}),
    "a2c": ("A2C", "MultiInputPolicy", MIXED, spaces.MultiBinary(4), {}),
    "dqn": ("DQN", "MlpPolicy", VECTOR, spaces.Discrete(4), {"buffer_size": 9}),
    "sac": ("SAC", "MlpPolicy", VECTOR, REAL, {"buffer_size": 9}),
    "sac_sde": ("SAC", "MlpPolicy", VECTOR, REAL, {"buffer_size": 9, "use_sde": True}),
    "td3": ("TD3", "MlpPolicy", VECTOR, REAL, {"buffer_size": 9}),
    "ddpg": ("DDPG", "MlpPolicy", VECTOR, REAL, {"buffer_size": 9}),
}


class Noise(gymnasium.Env[Any, Any]):
    """Random observations, whatever is done."""

    def __init__(self, observation: Any, action: Any) -> None:
        self.observation_space, self.action_space = observation, action

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, False, False, {}


def record_all(folder: Path) -> None:
    """Makes, records and converts them all, and one with VecNormalize."""
    for name, (algorithm, policy, observation, action, more) in AGENTS.items():
        model = getattr(stable_baselines3, algorithm)(policy, Noise(observation, action), seed=1, **more)
        recorder = Recorder(folder, name, model.observation_space)
        recorder.record["action"], _ = model.predict(recorder.observation, deterministic=True)
        recorder.finish(model.save, ".zip")
    _normalized(folder)


def _normalized(folder: Path) -> None:
    env = VecNormalize(DummyVecEnv([lambda: Noise(VECTOR, REAL)]), clip_obs=1.5)
    model = stable_baselines3.PPO("MlpPolicy", env, n_steps=64, seed=1)
    model.learn(64)  # gathers the statistics
    statistics = str(folder / "statistics")
    env.save(statistics)
    recorder = Recorder(folder, "ppo_normalized", VECTOR)
    recorder.record["action"], _ = model.predict(env.normalize_obs(recorder.observation), deterministic=True)
    recorder.finish(model.save, ".zip", vec_normalize=statistics)
