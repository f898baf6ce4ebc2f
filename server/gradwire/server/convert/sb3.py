"""Policies of Stable-Baselines3: PPO, A2C, DQN, SAC, TD3 and DDPG.

Knows: its networks and its action distributions (stable_baselines3.common.distributions). What `predict` does around
them, a bundle's head does: clip or unsquash, argmax or sample.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

import gymnasium
import torch
from gymnasium import spaces

from gradwire.server.convert.describe import leaves
from gradwire.server.convert.export import Graph

Forward = Callable[[Any, dict[str, torch.Tensor]], Mapping[str, torch.Tensor]]
# Which of its settings only this algorithm has; in this order, as DDPG is a TD3.
_MARKS = {"SAC": "target_entropy", "TD3": "target_policy_noise", "DQN": "exploration_fraction", "PPO": "clip_range"}
ALGORITHMS = ("PPO", "A2C", "DQN", "SAC", "TD3", "DDPG")


def load(source: str, algo: str, vec_normalize: str) -> tuple[dict[str, Any], dict[str, Graph]]:
    """Manifest fields, and the only network. Runs the code in the checkpoint."""
    import stable_baselines3

    name = algo.upper() or _guess(source)
    if name not in ALGORITHMS:
        raise ValueError(f"{name} is not converted from Stable-Baselines3; --algo takes {', '.join(ALGORITHMS)}")
    # buffer_size: an off-policy algorithm makes its replay buffer when it is loaded, gigabytes by default.
    extra = {} if name in ("PPO", "A2C") else {"buffer_size": 1}
    model = getattr(stable_baselines3, name).load(source, device="cpu", **extra)
    policy = model.policy
    policy.set_training_mode(False)
    torch.distributions.Distribution.set_default_validate_args(False)
    head, forward = _forward(name, policy)
    graph = Graph(
        module=policy,
        forward=forward,
        observation_space=model.observation_space,
        action_space=model.action_space,
        head=head,
        normalization=_normalization(vec_normalize, model) if vec_normalize else {},
    )
    return {"algo": name, "source": {"framework": "stable_baselines3", "version": version("stable_baselines3")}}, {
        "policy": graph
    }


def _guess(source: str) -> str:
    with zipfile.ZipFile(source) as archive:
        settings = json.loads(archive.read("data"))
    return next((name for name, mark in _MARKS.items() if mark in settings), "A2C")


def _forward(name: str, policy: Any) -> tuple[str, Forward]:
    if name == "DQN":
        return "q_values", lambda obs, _: {"q_values": policy.q_net(obs)}
    if name in ("TD3", "DDPG"):
        low, high = (torch.as_tensor(bound) for bound in (policy.action_space.low, policy.action_space.high))

        def act(obs: Any, _: Any) -> Mapping[str, torch.Tensor]:
            action = policy.actor(obs).reshape(-1, *low.shape)
            return {"action": (low + 0.5 * (action + 1.0) * (high - low)).flatten(1)}

        return "deterministic", act
    if name == "SAC":
        return "squashed_gaussian", _sac(policy.actor)
    return _on_policy(policy)


def _sac(actor: Any) -> Forward:
    def act(obs: Any, _: Any) -> Mapping[str, torch.Tensor]:
        mean, log_std, extra = actor.get_action_dist_params(obs)
        if actor.use_sde:
            log_std = actor.action_dist.proba_distribution(mean, log_std, **extra).distribution.stddev.log()
        return {"mean": mean, "log_std": log_std}

    return act


def _on_policy(policy: Any) -> tuple[str, Forward]:
    space = policy.action_space

    def distribution(obs: Any) -> Any:
        return policy.get_distribution(obs).distribution

    if isinstance(space, spaces.Box):
        head = "squashed_gaussian" if policy.squash_output else "clipped_gaussian"

        def gaussian(obs: Any, _: Any) -> Mapping[str, torch.Tensor]:
            normal = distribution(obs)
            return {"mean": normal.mean, "log_std": normal.stddev.log()}

        return head, gaussian
    if isinstance(space, spaces.MultiDiscrete):
        return "multi_categorical", lambda obs, _: {
            "logits": torch.cat([choice.logits for choice in distribution(obs)], dim=1)
        }
    head = "categorical" if isinstance(space, spaces.Discrete) else "bernoulli"
    return head, lambda obs, _: {"logits": distribution(obs).logits}


class _Spaces(gymnasium.Env[Any, Any]):
    """An environment of spaces alone, which VecNormalize asks for."""

    def __init__(self, model: Any) -> None:
        self.observation_space, self.action_space = model.observation_space, model.action_space


def _normalization(path: str, model: Any) -> dict[str, Any]:
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    saved = VecNormalize.load(path, DummyVecEnv([lambda: _Spaces(model)]))
    if not saved.norm_obs:
        return {}
    found: dict[str, Any] = {}
    for name, leaf in leaves(model.observation_space):
        key = name.removeprefix("obs").removeprefix(".")
        if not isinstance(leaf, spaces.Box) or (key and key not in (saved.norm_obs_keys or [])):
            continue
        statistics: Any = saved.obs_rms[key] if key else saved.obs_rms
        found[name] = {
            "mean": statistics.mean.ravel().tolist(),
            "variance": statistics.var.ravel().tolist(),
            "epsilon": float(saved.epsilon),
            "clip": float(saved.clip_obs),
        }
    return found
