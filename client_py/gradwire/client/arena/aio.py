"""AsyncAgent: a deployed agent, for asyncio.

Knows: the document's methods and rules. Does not know: the wire (the client underneath does), nor what a deployment
runs on.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, cast

from gradwire.client.aio.client import DEFAULT_MAX_MESSAGE_BYTES, AsyncClient
from gradwire.client.aio.streams import AsyncReplyStream
from gradwire.client.arena.checks import (
    METADATA_NEEDED,
    Modality,
    action_inputs,
    check_modality,
    check_prompts,
    check_session_id,
)
from gradwire.client.arena.credentials import find_credential
from gradwire.client.arena.endpoint import parse_endpoint
from gradwire.client.arena.errors import ArenaInferenceError, arena_errors
from gradwire.client.arena.models import (
    AgentInfo,
    LLMParams,
    LLMResults,
    PredictResult,
    SessionDetail,
    SessionInfo,
    StatusResponse,
)
from gradwire.client.arena.params import sampling_params
from gradwire.client.arena.results import conversation_of, predict_result, results_of, session_of, status_of
from gradwire.client.arena.streams import AsyncTextStream
from gradwire.client.arena.types import RLData, as_value, without_nothing
from gradwire.client.config import RetryConfig, TLSConfig
from gradwire.client.errors import NotFoundError
from gradwire.client.types.inference import ValueLike


class AsyncAgent:
    """A deployed agent, for asyncio: as `Agent`, with its options, and each method awaited.

    Metadata is fetched by `async with`, or by the first call, unless probe_on_init is False. It belongs to the event
    loop that first uses it.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        api_key: str | None = None,
        org_key: str | None = None,
        external_user_id: str | None = None,
        timeout: float = 30,
        generate_params: LLMParams | None = None,
        probe_on_init: bool = True,
        deployment: str = "",
        tls: TLSConfig | None = None,
        retry: RetryConfig | None = None,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        shared_memory: bool | None = None,
    ) -> None:
        credential = find_credential(api_key, org_key, external_user_id)
        with arena_errors():
            place = parse_endpoint(endpoint, deployment)
            self._client = AsyncClient(
                place.address,
                token=credential.token,
                metadata=credential.metadata,
                tls=tls,
                retry=retry,
                timeout=timeout,
                max_message_bytes=max_message_bytes,
                shared_memory=shared_memory,
            )
        self._arrays = self._client.inference
        """What actions and predictions are asked of."""
        self._place = place
        self._timeout = timeout
        self._probe = probe_on_init
        self._probing = asyncio.Lock()
        self.metadata: StatusResponse | None = None
        """The deployment's metadata; None until it has been fetched."""
        self.generate_params = LLMParams() if generate_params is None else generate_params
        """Sampling parameters of calls that set none of their own."""

    async def status(self, *, refresh: bool = False, timeout: float | None = None) -> StatusResponse:
        """The deployment's metadata: as fetched before, unless `refresh`."""
        if refresh or self.metadata is None:
            with arena_errors():
                status = await self._client.inference.get_status(deployment_id=self._place.deployment, timeout=timeout)
            self.metadata = status_of(status)
        return self.metadata

    async def get_action(
        self,
        observation: ValueLike,
        *,
        batched: bool = False,
        hidden_state: ValueLike = None,
        info: Mapping[str, ValueLike] | None = None,
        env_defined_actions: ValueLike = None,
        deterministic: bool | None = None,
        seed: int | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> tuple[RLData, RLData | None]:
        """As `Agent.get_action`."""
        agent = await self._agent("rl")
        mask, dictated = action_inputs(agent, observation, info, env_defined_actions)
        takes_state = agent is None or agent.recurrent
        with arena_errors():
            result = await self._arrays.get_action(
                as_value(observation, "observation"),
                batched=batched,
                hidden_state=_optional(without_nothing(hidden_state) if takes_state else None, "hidden_state"),
                action_mask=_optional(mask, "action_mask"),
                env_defined_actions=_optional(dictated, "env_defined_actions"),
                deterministic=deterministic,
                seed=seed,
                session_id="" if session_id is None else check_session_id(session_id),
                deployment_id=self._place.deployment,
                timeout=timeout,
            )
        return cast(RLData, result.action), cast(RLData, result.hidden_state)

    async def predict(
        self, inputs: ValueLike, *, batched: bool = False, timeout: float | None = None
    ) -> tuple[RLData, PredictResult]:
        """As `Agent.predict`."""
        await self._agent("supervised")
        with arena_errors():
            prediction = await self._arrays.predict(
                as_value(inputs, "inputs"), batched=batched, deployment_id=self._place.deployment, timeout=timeout
            )
        return cast(RLData, prediction.outputs), predict_result(prediction)

    async def generate(
        self,
        prompts: str | list[str],
        *,
        params: LLMParams | Mapping[str, Any] | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> LLMResults:
        """As `Agent.generate`."""
        await self._agent("llm")
        with arena_errors():
            replies = await self._client.inference.generate(
                check_prompts(prompts),
                sampling_params(self.generate_params, params),
                session_id=None if session_id is None else check_session_id(session_id),
                deployment_id=self._place.deployment,
                timeout=timeout,
            )
        return results_of(replies)

    def generate_stream(
        self,
        prompt: str,
        *,
        params: LLMParams | Mapping[str, Any] | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> AsyncTextStream:
        """As `Agent.generate_stream`."""

        async def begin() -> AsyncReplyStream:
            await self._agent("llm")
            (checked,) = check_prompts([prompt])
            return self._client.inference.generate_stream(
                checked,
                sampling_params(self.generate_params, params),
                session_id=None if session_id is None else check_session_id(session_id),
                deployment_id=self._place.deployment,
                timeout=math.inf if timeout is None else timeout,
            )

        return AsyncTextStream(begin, self._timeout)

    async def list_sessions(self, *, limit: int | None = None, timeout: float | None = None) -> list[SessionInfo]:
        """As `Agent.list_sessions`."""
        await self._agent("llm")
        with arena_errors():
            found = await self._client.sessions.list(limit=limit, deployment_id=self._place.deployment, timeout=timeout)
        return [session_of(session) for session in found]

    async def get_session(self, session_id: str, *, timeout: float | None = None) -> SessionDetail:
        """As `Agent.get_session`."""
        await self._agent("llm")
        name = check_session_id(session_id)
        with arena_errors():
            try:
                found = await self._client.sessions.get(name, deployment_id=self._place.deployment, timeout=timeout)
            except NotFoundError as error:
                if error.reason == "DEPLOYMENT_NOT_FOUND":
                    raise
                raise ArenaInferenceError(f"Session {name!r} not found.", status_code=404) from error
        return conversation_of(found)

    async def delete_session(self, session_id: str, *, timeout: float | None = None) -> bool:
        """As `Agent.delete_session`."""
        await self._agent("llm")
        with arena_errors():
            return await self._client.sessions.delete(
                check_session_id(session_id), deployment_id=self._place.deployment, timeout=timeout
            )

    async def close(self) -> None:
        """Closes the connection. Closing again is fine."""
        await self._client.close()

    async def __aenter__(self) -> Self:
        if self._probe:
            try:
                await self._probed()
            except BaseException:
                await self.close()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} endpoint={self._place.shown!r}>"

    async def _agent(self, wanted: Modality) -> AgentInfo | None:
        """The agent's shape, which fits the call, or None where the deployment does not tell it."""
        if self.metadata is None and not self._probe:
            raise ArenaInferenceError(METADATA_NEEDED)
        agent = (await self._probed()).agent
        check_modality(agent, wanted)
        return agent

    async def _probed(self) -> StatusResponse:
        if self.metadata is not None:
            return self.metadata
        async with self._probing:
            return await self.status()


def _optional(value: Any, where: str) -> Any:
    return None if value is None else as_value(value, where)
