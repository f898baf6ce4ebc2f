"""Policies of AgileRL: DQN, CQN, Rainbow DQN, DDPG, TD3, PPO (also recurrent), MADDPG, MATD3 and IPPO.

Knows: its networks, and what `get_action` does around them when it does not train. A GumbelSoftmax output followed by
argmax is a sample of the categorical of the network's logits, which is what the bundle has.
"""

from __future__ import annotations

import pickletools
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from gradwire.server.convert.export import Graph

_CLASSES = {"Rainbow DQN": "RainbowDQN", "Recurrent PPO": "RecurrentPPO"}
ALGORITHMS = ("DQN", "CQN", "RainbowDQN", "DDPG", "TD3", "PPO", "RecurrentPPO", "MADDPG", "MATD3", "IPPO")
_HEADS = {
    spaces.Discrete: "categorical",
    spaces.MultiDiscrete: "multi_categorical",
    spaces.MultiBinary: "bernoulli",
    spaces.Box: "clipped_gaussian",
}


def load(source: str, algo: str) -> tuple[dict[str, Any], dict[str, Graph]]:
    """Manifest fields and the networks. Runs the code in the checkpoint."""
    import agilerl.algorithms
    from agilerl.utils.algo_utils import preprocess_observation

    preprocess_observation.register(spaces.Discrete, _one_hot)
    name = algo or _guess(source)
    name = _CLASSES.get(name, name)
    if name not in ALGORITHMS:
        raise ValueError(f"{name} is not converted from AgileRL; --algo takes {', '.join(ALGORITHMS)}")
    agent = getattr(agilerl.algorithms, name).load(source, device="cpu")
    agent.set_training_mode(False)
    fields: dict[str, Any] = {"algo": name, "source": {"framework": "agilerl", "version": version("agilerl")}}
    if name not in ("MADDPG", "MATD3", "IPPO"):
        return fields, {"policy": _single(name, agent)}
    fields["agents"] = {agent_id: agent.get_network_id(agent_id) for agent_id in agent.agent_ids}
    return fields, {network: _of_group(name, agent, network) for network in agent.actors}


def _one_hot(observation_space: spaces.Discrete, observation: Any, *_: Any, **__: Any) -> torch.Tensor:
    """The library's own, but for its squeeze(), which takes the batch dimension away from a batch of one."""
    return torch.nn.functional.one_hot(
        torch.as_tensor(observation).long(), num_classes=int(observation_space.n)
    ).float()


def _guess(source: str) -> str:
    """The class's name, read from the pickle's opcodes: nothing is run for it."""
    with zipfile.ZipFile(source) as archive:
        member = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        texts = [value for _, value, _ in pickletools.genops(archive.read(member)) if isinstance(value, str)]
    return next((value for key, value in pairwise(texts) if key == "algo"), "")


def _single(name: str, agent: Any) -> Graph:
    def observe(obs: Any) -> Any:
        return agent.preprocess_observation(obs)

    observation_space = getattr(agent, "env_observation_space", agent.observation_space)
    if name in ("PPO", "RecurrentPPO"):
        return _stochastic(agent.actor, observation_space, agent.action_space, observe, agent.actor.squash_output)
    if name in ("DDPG", "TD3"):
        return _rescaled(agent.actor, observation_space, agent.action_space, observe)
    return Graph(
        module=agent.actor,
        forward=lambda obs, _: {"q_values": agent.actor(observe(obs))},
        observation_space=observation_space,
        action_space=agent.action_space,
        head="q_values",
    )


def _of_group(name: str, agent: Any, network: str) -> Graph:
    actor = agent.actors[network]
    member = next(agent_id for agent_id in agent.agent_ids if agent.get_network_id(agent_id) == network)
    observation_space = agent.possible_observation_spaces[member]
    action_space = agent.possible_action_spaces[member]

    def observe(obs: Any) -> Any:
        return agent.preprocess_observation({member: obs}, [network])[network]

    if name == "IPPO":
        if actor.squash_output:
            raise ValueError("IPPO with squash_output is not converted: its own actions are squashed, then clipped")
        return _stochastic(actor, observation_space, action_space, observe, False)
    if isinstance(action_space, spaces.Box):
        return _rescaled(actor, observation_space, action_space, observe)
    sampled = _without_gumbel(actor)
    output = "logits" if sampled else "q_values"
    return Graph(
        module=actor,
        forward=lambda obs, _: {output: actor(observe(obs))},
        observation_space=observation_space,
        action_space=action_space,
        head="categorical" if sampled else "q_values",
    )


def _without_gumbel(actor: torch.nn.Module) -> bool:
    """Makes the network end with its logits; whether it ended with a GumbelSoftmax."""
    found = [
        (parent, child)
        for parent in actor.modules()
        for child, module in parent.named_children()
        if type(module).__name__ == "GumbelSoftmax"
    ]
    for parent, child in found:
        setattr(parent, child, torch.nn.Identity())
    return bool(found)


def _rescaled(actor: Any, observation_space: Any, action_space: Any, observe: Any) -> Graph:
    return Graph(
        module=actor,
        forward=lambda obs, _: {"action": actor.rescale_output_action(actor(observe(obs))).flatten(1)},
        observation_space=observation_space,
        action_space=action_space,
        head="deterministic",
    )


def _stochastic(actor: Any, observation_space: Any, action_space: Any, observe: Any, squashed: bool) -> Graph:
    distribution = actor.head_net
    initial = actor.initialize_hidden_state(batch_size=1) if actor.recurrent else {}

    def forward(obs: Any, states: dict[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        latent = observe(obs)
        following: Mapping[str, torch.Tensor] = {}
        if states:
            # The library has the batch second, (layers, batch, width); a bundle has it first.
            hidden = {key: state.transpose(0, 1).contiguous() for key, state in states.items()}
            latent, following = actor.extract_features(latent, hidden_state=hidden)
        else:
            latent = actor.extract_features(latent)
        output = distribution.wrapped(latent)
        if isinstance(action_space, spaces.Box):
            found = {"mean": output, "log_std": distribution.log_std + torch.zeros_like(output)}
        else:
            found = {"logits": output}
        return found | {f"next_state.{key}": following[key].transpose(0, 1) for key in states}

    head = "squashed_gaussian" if squashed else _HEADS[type(action_space)]
    states = {key: np.asarray(state.transpose(0, 1)[0]) for key, state in initial.items()}
    return Graph(
        module=actor,
        forward=forward,
        observation_space=observation_space,
        action_space=action_space,
        head=head,
        states=states,
    )
