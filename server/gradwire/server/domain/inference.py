"""What callers ask of deployments: one front for all kinds, and for all doors.

Knows: which call fits which kind, hidden states that the server keeps. Does not know: messages of any door. Values are
numpy arrays, or mappings and tuples of such (`engines.acting.Value`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradwire.server.domain.caller import Caller
from gradwire.server.domain.deployments import (
    Deployment,
    DeploymentKind,
    Deployments,
    PolicyBundle,
    Weights,
)
from gradwire.server.domain.hidden_states import HiddenStates
from gradwire.server.domain.replies import Replier, Replies, ReplyEvent
from gradwire.server.domain.sessions import MemoryScope, check_session_id
from gradwire.server.domain.turns import Turns
from gradwire.server.engines.acting import ActingEngine, Actions, PolicyInfo, Predictions, Value
from gradwire.server.errors import FailedPrecondition, InvalidArgument


@dataclass(frozen=True, slots=True)
class Status:
    """What a deployment is."""

    deployment_id: str
    instance_id: str
    kind: DeploymentKind
    memory_scope: MemoryScope
    weights: Weights
    name: str
    """Of the algorithm or the model."""
    policy: PolicyInfo | None
    """Of a policy or a supervised model."""

    @property
    def short_name(self) -> str:
        """The name without folders: a model's may be a path on this host."""
        return self.name.rstrip("/").rpartition("/")[2]


@dataclass(slots=True)  # frozen ones take three times as long to make
class ActionRequest:
    """What a policy is asked; the fields are those of `ActingEngine.act`."""

    observation: Value
    batched: bool = False
    hidden_state: Value = None
    action_mask: Value = None
    env_defined_actions: Value = None
    deterministic: bool | None = None
    """None: as the policy was deployed."""
    seed: int | None = None
    session_id: str = ""
    """The server keeps the hidden state under it. Empty: the caller keeps it."""


class Inference:
    """Calls to deployments. An empty `deployment_id` is the only deployment."""

    def __init__(self, deployments: Deployments, turns: Turns, states: HiddenStates) -> None:
        self._deployments = deployments
        self._replier = Replier(turns)
        self._states = states

    def status(self, caller: Caller, deployment_id: str) -> Status:
        """What the deployment is. Raises NotFound, and FailedPrecondition when it cannot answer. Everybody may ask: the
        errors say nothing of other deployments, or of this host, to whoever may not see them."""
        deployment = self._deployments.find(deployment_id, naming_others=caller.may_see_deployments)
        if deployment.trouble and not caller.may_see_deployments:
            raise FailedPrecondition(
                "DEPLOYMENT_FAILED",
                f"deployment {deployment.deployment_id!r} cannot answer; whoever has a token for it is told why",
                subject=f"deployment/{deployment.deployment_id}",
            )
        deployment.require(deployment.kind)
        info = deployment.engine.info if deployment.engine else None
        name = info.name if info else ""
        if deployment.job is not None:
            name = deployment.job.engine.info.name
        return Status(
            deployment.deployment_id,
            deployment.instance_id,
            deployment.kind,
            deployment.memory_scope,
            deployment.weights,
            name,
            info,
        )

    async def act(self, caller: Caller, deployment_id: str, request: ActionRequest) -> Actions:
        """Actions of a policy. Raises InvalidArgument with the field of the request."""
        deployment, engine = self._bundle(deployment_id, DeploymentKind.RL_POLICY)
        session_id = check_session_id(request.session_id) if request.session_id else ""
        with deployment.in_use():
            if not session_id or not engine.info.recurrent:
                return await _act(deployment, engine, request, request.hidden_state)
            key = (deployment.instance_id, caller.tenant, caller.user, session_id)
            async with self._states.state(key) as kept:
                given = request.hidden_state
                if given is None:
                    given = _asked_for(kept.value, request, engine.info)
                actions = await _on_kept(deployment, engine, request, given)
                kept.value = _merged(kept.value, actions.hidden_state, engine.info)
                return actions

    async def predict(self, deployment_id: str, inputs: Value, *, batched: bool = False) -> Predictions:
        """Predictions of a supervised model. Raises InvalidArgument with the field of the request."""
        deployment, engine = self._bundle(deployment_id, DeploymentKind.SUPERVISED)
        with deployment.in_use():
            return await engine.predict(inputs, batched=batched)

    async def generate(
        self,
        caller: Caller,
        deployment_id: str,
        prompts: Sequence[str],
        given: Mapping[str, Any],
        session_id: str | None = None,
    ) -> Replies:
        """Replies of a language model, whole: see `Replier.whole`."""
        deployment = self._llm(deployment_id)
        return await self._replier.whole(caller, deployment, prompts, given, session_id)

    async def stream(
        self,
        caller: Caller,
        deployment_id: str,
        prompt: str,
        given: Mapping[str, Any],
        session_id: str | None = None,
    ) -> AsyncGenerator[ReplyEvent, None]:
        """The reply of a language model as it comes: see `Replier.stream`. Close it, as with `aclosing`."""
        deployment = self._llm(deployment_id)
        async with aclosing(self._replier.stream(caller, deployment, prompt, given, session_id)) as events:
            async for event in events:
                yield event

    def _llm(self, deployment_id: str) -> Deployment:
        deployment = self._deployments.find(deployment_id)
        deployment.require(DeploymentKind.LLM)
        return deployment

    def _bundle(self, deployment_id: str, kind: DeploymentKind) -> tuple[Deployment, ActingEngine]:
        deployment = self._deployments.find(deployment_id)
        deployment.require(kind)
        assert deployment.engine is not None, "a bundle's deployment has an engine, or says why not"
        return deployment, deployment.engine


async def _on_kept(deployment: Deployment, engine: ActingEngine, request: ActionRequest, state: Value) -> Actions:
    try:
        return await _act(deployment, engine, request, state)
    except InvalidArgument as error:
        about_state = any(violation.field.partition(".")[0] == "hidden_state" for violation in error.violations)
        if request.hidden_state is not None or not about_state:
            raise
        raise InvalidArgument.at(
            "session_id",
            f"{request.session_id!r} has a hidden state of another batch size; go on with the batch that began it, "
            "give hidden_state, or take a new session_id",
        ) from error


async def _act(deployment: Deployment, engine: ActingEngine, request: ActionRequest, state: Value) -> Actions:
    source = deployment.source
    default = source.deterministic if isinstance(source, PolicyBundle) else None
    return await engine.act(
        request.observation,
        batched=request.batched,
        hidden_state=state,
        action_mask=request.action_mask,
        env_defined_actions=request.env_defined_actions,
        deterministic=default if request.deterministic is None else request.deterministic,
        seed=request.seed,
    )


def _asked_for(kept: Value, request: ActionRequest, info: PolicyInfo) -> Value:
    """Of several agents' states, those of the agents that are observed now."""
    if info.agent_ids and isinstance(kept, Mapping):
        observed = request.observation if isinstance(request.observation, Mapping) else {}
        return {agent: state for agent, state in kept.items() if agent in observed}
    return kept


def _merged(kept: Value, new: Value, info: PolicyInfo) -> Value:
    """What is kept from now on: an agent that was not asked keeps its state."""
    owned = _owned(new)
    if info.agent_ids and isinstance(owned, Mapping):
        return {**(kept if isinstance(kept, Mapping) else {}), **owned}
    return owned


def _owned(value: Value) -> Value:
    """A copy: what an engine gives may be a part of a whole batch's array, which would be kept with it."""
    if isinstance(value, Mapping):
        return {key: _owned(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return tuple(map(_owned, value))
    return None if value is None else np.array(value)
