"""The engine of policies and supervised models: one bundle, loaded, answering callers.

Knows: agents, hidden states, seeds, and the order of the steps. Does not know: deployments, sessions, gRPC.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gradwire.server.engines.acting import Actions, PolicyInfo, Predictions, Value, num_bytes
from gradwire.server.engines.policy import values
from gradwire.server.engines.policy.batcher import Batcher, BatchLimits
from gradwire.server.engines.policy.bundle import MAX_BUNDLE_BYTES, Bundle, read_bundle
from gradwire.server.engines.policy.heads import choose
from gradwire.server.engines.policy.manifest import Manifest
from gradwire.server.engines.policy.network import Arrays, OnnxNetwork
from gradwire.server.engines.policy.request import Ask, as_input, cast, check_finite, check_numbers, some
from gradwire.server.errors import InvalidArgument

T = TypeVar("T")
_OFF_LOOP_BYTES = 2**18  # arrays beyond it are checked in a thread
_SINGLE = ""  # the id of the only agent of a policy that has no agent ids


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """How a bundle is run."""

    batching: BatchLimits = field(default_factory=BatchLimits)
    threads: int = 1
    """Threads of one run."""
    workers: int = 2
    """Runs, and checks of large requests, at one time."""
    max_request_rows: int = 2**16
    """Batch dimension of one request."""
    max_bundle_bytes: int = MAX_BUNDLE_BYTES


class PolicyEngine:
    """A loaded bundle. Made by `load` on the event loop that will call it."""

    def __init__(self, bundle: Bundle, options: PolicyOptions) -> None:
        """Blocks while ONNX Runtime loads; BundleError when the bundle cannot be served."""
        self.manifest: Manifest = bundle.manifest
        self._options = options
        self._networks = {
            name: OnnxNetwork(name, spec, bundle.files[spec.file], threads=options.threads)
            for name, spec in bundle.manifest.networks.items()
        }
        self._executor = ThreadPoolExecutor(options.workers, thread_name_prefix="policy")
        self._batchers = {
            name: Batcher(network, self._executor, options.batching, network.fast_rows())
            for name, network in self._networks.items()
        }
        self._agents = dict(bundle.manifest.agents) or {_SINGLE: next(iter(self._networks))}
        self._rng = np.random.default_rng()
        self.recurrent = any(network.states for network in bundle.manifest.networks.values())
        """It takes and returns a hidden state."""

    @classmethod
    async def load(cls, path: Path, options: PolicyOptions | None = None) -> PolicyEngine:
        """Reads, checks and loads a bundle in a thread."""
        chosen = options or PolicyOptions()

        def build() -> PolicyEngine:
            return cls(read_bundle(path, max_bytes=chosen.max_bundle_bytes), chosen)

        return await asyncio.to_thread(build)

    async def close(self) -> None:
        """Answers what has begun, refuses the rest with UNAVAILABLE, then frees the threads."""
        await asyncio.gather(*(batcher.close() for batcher in self._batchers.values()))
        self._executor.shutdown(wait=False)

    @property
    def info(self) -> PolicyInfo:
        """What is loaded."""
        return PolicyInfo(
            kind=self.manifest.kind,
            name=self.manifest.algo,
            agent_ids=self.agent_ids,
            observation_space=self.observation_space,
            action_space=self.action_space,
            recurrent=self.recurrent,
            supports_action_mask=self.supports_action_mask,
        )

    @property
    def agent_ids(self) -> tuple[str, ...]:
        """Agents of a multi-agent policy; empty for a single one."""
        return tuple(self.manifest.agents)

    @property
    def supports_action_mask(self) -> bool:
        """Some agent's actions can be masked."""
        spaces = [network.action_space for network in self.manifest.networks.values()]
        return any(space is not None and space.type != "Box" for space in spaces)

    @property
    def observation_space(self) -> dict[str, Any]:
        """The space of observations or inputs as in the manifest; a Dict by agent for several."""
        return self._by_agent({name: spec.observation_space for name, spec in self.manifest.networks.items()})

    @property
    def action_space(self) -> dict[str, Any] | None:
        """The space of actions, likewise; None of a supervised model."""
        spaces = {name: spec.action_space for name, spec in self.manifest.networks.items()}
        return None if None in spaces.values() else self._by_agent(spaces)

    def _by_agent(self, spaces: Mapping[str, Any]) -> dict[str, Any]:
        described = {agent: spaces[network].model_dump(mode="json") for agent, network in self._agents.items()}
        return described.get(_SINGLE) or {"type": "Dict", "spaces": described}

    async def act(
        self,
        observation: Value,
        *,
        batched: bool = False,
        hidden_state: Value = None,
        action_mask: Value = None,
        env_defined_actions: Value = None,
        deterministic: bool | None = None,
        seed: int | None = None,
    ) -> Actions:
        """Actions of a policy.

        Args:
            observation: as the observation space, or by agent id.
            batched: observations, masks, states and actions have a leading batch dimension.
            hidden_state: what the last call returned. Default: the initial state.
            action_mask: 1 where allowed (`values.check_mask` has the shapes), or by agent id. Default: all is.
            env_defined_actions: actions that the environment dictates, NaN where it does not, or by agent id.
            deterministic: the most likely action instead of a sample. Default: as the manifest says.
            seed: any integer; makes sampled actions repeatable, whoever else asks at the same time. Default: none.

        Raises InvalidArgument with the field, Unavailable when closed, ResourceExhausted when too many wait.
        """
        started = time.perf_counter()
        if self.manifest.kind != "rl_policy":
            raise InvalidArgument.at("", "the model is supervised: ask for predictions", reason="WRONG_DEPLOYMENT_KIND")
        greedy = self.manifest.deterministic if deterministic is None else deterministic
        asks = self._asks(observation, hidden_state, action_mask, env_defined_actions)
        if _SINGLE in self._agents:
            action, states = await self._act_one(asks[0], batched, greedy, seed)
            return Actions(action, states if self.recurrent else None, time.perf_counter() - started)
        # Gathered, so that agents that share a network share a run.
        found = await asyncio.gather(*(self._act_one(ask, batched, greedy, seed) for ask in asks))
        actions = {ask.agent: action for ask, (action, _) in zip(asks, found, strict=True)}
        hidden: Value = None
        if self.recurrent:
            hidden = {ask.agent: state for ask, (_, state) in zip(asks, found, strict=True)}
        return Actions(actions, hidden, time.perf_counter() - started)

    async def predict(self, inputs: Value, *, batched: bool = False) -> Predictions:
        """Outputs of a supervised model for inputs as its observation space. Raises as `act` does."""
        started = time.perf_counter()
        if self.manifest.kind != "supervised":
            raise InvalidArgument.at("", "the model is a policy: ask for actions", reason="WRONG_DEPLOYMENT_KIND")
        name = self._agents[_SINGLE]
        spec = self.manifest.networks[name]
        rows, feeds = await self._off_loop(inputs, lambda: self._feeds(name, inputs, batched, "inputs"))
        outputs = await self._batchers[name].run(feeds, rows)
        check_numbers(outputs)
        found = {key: array if batched else array[0] for key, array in outputs.items()}
        value: Value = found[spec.outputs[0]] if len(spec.outputs) == 1 else found
        return Predictions(value, rows, time.perf_counter() - started)

    def _asks(self, observation: Value, hidden_state: Value, mask: Value, dictated: Value) -> list[Ask]:
        if _SINGLE in self._agents:
            return [Ask(_SINGLE, observation, hidden_state, mask, dictated)]
        if not isinstance(observation, Mapping) or not observation:
            raise InvalidArgument.at("observation", f"must be a map by agent id: {some(self._agents)}")
        missing = sorted(set(self._agents) - set(observation))
        if missing and self.manifest.require_all_agents:
            raise InvalidArgument.at("observation", f"has no {missing[0]!r}; the policy needs all of its agents")
        for name, value in (
            ("observation", observation),
            ("hidden_state", hidden_state),
            ("action_mask", mask),
            ("env_defined_actions", dictated),
        ):
            if value is not None and not isinstance(value, Mapping):
                raise InvalidArgument.at(name, "must be a map by agent id, as the policy has several agents")
            known = self._agents if name == "observation" else observation
            unknown = sorted(set(value or {}) - set(known))
            if unknown:
                what = "is no agent of the policy" if name == "observation" else "is not among the observations"
                raise InvalidArgument.at(f"{name}.{unknown[0]}", f"{what}: {some(known)}")
        by_agent = [part if isinstance(part, Mapping) else {} for part in (hidden_state, mask, dictated)]
        return [Ask(agent, part, *(of.get(agent) for of in by_agent)) for agent, part in observation.items()]

    async def _act_one(self, ask: Ask, batched: bool, greedy: bool, seed: int | None) -> tuple[Value, Value]:
        name = self._agents[ask.agent]
        spec = self.manifest.networks[name]
        path = ask.path("observation")
        rows, feeds = await self._off_loop(ask.observation, lambda: self._feeds(name, ask.observation, batched, path))
        feeds |= self._states(name, ask, rows, batched)
        space, head = spec.action_space, spec.head
        assert space is not None and head is not None, "the manifest's validator gives every policy both"
        mask = None
        if ask.mask is not None:
            mask = values.check_mask(space, ask.mask, rows, batched, ask.path("action_mask"))
        outputs = await self._batchers[name].run(feeds, rows)
        check_numbers(outputs)
        action = choose(head, space, outputs, mask, None if greedy else self._rng_of(seed, ask.agent))
        check_finite(action)
        action = values.override(space, action, ask.dictated, batched, ask.path("env_defined_actions"))
        states = {key: outputs[f"next_state.{key}"] for key in spec.states}
        if not batched:
            action, states = action[0], {key: state[0] for key, state in states.items()}
        return action, states or None

    def _feeds(self, name: str, observation: Value, batched: bool, path: str) -> tuple[int, Arrays]:
        spec, network = self.manifest.networks[name], self._networks[name]
        rows = values.rows_of(spec.observation_space, observation, path) if batched else 1
        if rows > self._options.max_request_rows:
            raise InvalidArgument.at(path, f"has {rows} rows; one request takes {self._options.max_request_rows}")
        flat = values.flatten(spec.observation_space, observation, rows, batched, path, "obs", spec.check_bounds)
        return rows, {key: as_input(key, array, spec, network, path) for key, array in flat.items()}

    def _states(self, name: str, ask: Ask, rows: int, batched: bool) -> Arrays:
        spec, network, path = self.manifest.networks[name], self._networks[name], ask.path("hidden_state")
        if ask.hidden_state is None:
            return {f"state.{key}": state for key, state in network.initial_state(rows).items()}
        if not spec.states:
            raise InvalidArgument.at(path, "was given, but the policy is not recurrent")
        given = ask.hidden_state
        if not isinstance(given, Mapping) or set(given) != set(spec.states):
            raise InvalidArgument.at(path, f"must be a map with the keys {', '.join(spec.states)}")
        feeds: Arrays = {}
        for key, state in spec.states.items():
            array = values.with_batch(given[key], state.shape, rows, batched, f"{path}.{key}")
            if not values.all_finite(array):
                raise InvalidArgument.at(f"{path}.{key}", "holds NaN or infinity")
            feeds[f"state.{key}"] = cast(array, network.input_dtypes[f"state.{key}"], f"{path}.{key}")
        return feeds

    def _rng_of(self, seed: int | None, agent: str) -> np.random.Generator:
        if seed is None:
            return self._rng
        # By agent: an agent's sample does not depend on which others are asked for.
        return np.random.default_rng([seed % 2**64, zlib.crc32(agent.encode())])

    async def _off_loop(self, value: Value, work: Callable[[], T]) -> T:
        if num_bytes(value) <= _OFF_LOOP_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
