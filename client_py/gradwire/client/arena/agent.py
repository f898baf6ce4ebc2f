"""Agent: a deployed agent, for plain code. It runs an AsyncAgent on the process's one background loop, or on none.

Knows: blocking. Works in several threads, and where a loop already runs, as in Jupyter.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from gradwire.client._core.blocking import at_once
from gradwire.client._core.connection import Connection
from gradwire.client.aio.client import DEFAULT_MAX_MESSAGE_BYTES
from gradwire.client.aio.inference import AsyncInference
from gradwire.client.arena import serde
from gradwire.client.arena.aio import AsyncAgent
from gradwire.client.arena.models import (
    LLMParams,
    LLMResults,
    PredictResult,
    SessionDetail,
    SessionInfo,
    StatusResponse,
)
from gradwire.client.arena.streams import TextStream
from gradwire.client.arena.types import RLData
from gradwire.client.config import RetryConfig, TLSConfig
from gradwire.client.sync.portal import Portal
from gradwire.client.types.inference import ValueLike

T = TypeVar("T")


class Agent:
    """A deployed agent: a language model, an RL policy or a supervised model.

    A call that does not fit the deployment's kind, and every other failure, is ArenaInferenceError; a missing or
    refused credential is ArenaAuthError. `timeout=` of a call is its deadline in seconds, instead of the agent's.
    """

    serialize = staticmethod(serde.serialize)
    deserialize = staticmethod(serde.deserialize)
    get_batch_size = staticmethod(serde.get_batch_size)

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
        """Connects, and fetches `metadata` unless `probe_on_init` is False.

        Args:
            endpoint: the server and the deployment's name: "grpc://HOST:PORT/NAME", "grpcs://..." (TLS),
                "http://..." or "https://..." (it takes aiohttp, the extra `http`). Without a name: the only deployment.
            api_key: a person's token. Default ARENA_API_KEY, then GRADWIRE_TOKEN.
            org_key: an organisation's token, with `external_user_id`. Default ARENA_ORG_KEY.
            external_user_id: whom the organisation's token acts for. Default ARENA_EXTERNAL_USER_ID.
            timeout: deadline of each call in seconds; of a stream, the longest wait for its next piece.
            generate_params: sampling parameters of calls that set none. Default `LLMParams()`.
            probe_on_init: fetch the metadata now.
            deployment: the deployment's name, where the endpoint has none.
            tls: certificates.
            retry: how calls that are safe to repeat are sent again when the server cannot be reached.
            max_message_bytes: the largest message either way.
            shared_memory: pass large arrays to a server on this host by shared memory. Default: yes, unless
                GRADWIRE_SHARED_MEMORY is false.

        Raises:
            ArenaAuthError: one of org_key and external_user_id is missing, or the credential is refused.
            ArenaInferenceError: the endpoint cannot be used or reached, or has no such deployment; also when a
                credential would travel to another machine in the clear.
        """
        self._async = AsyncAgent(
            endpoint,
            api_key=api_key,
            org_key=org_key,
            external_user_id=external_user_id,
            timeout=timeout,
            generate_params=generate_params,
            probe_on_init=probe_on_init,
            deployment=deployment,
            tls=tls,
            retry=retry,
            max_message_bytes=max_message_bytes,
            shared_memory=shared_memory,
        )
        self._loop = Portal(self._async._client)
        # Actions are asked for one after the other: over gRPC they do without the background loop.
        self._blocking = self._async._client._connection.blocking()
        if self._blocking is not None:
            self._async._arrays = AsyncInference(cast(Connection, self._blocking))
        if probe_on_init:
            try:
                self.status()
            except BaseException:
                self.close()
                raise

    @property
    def metadata(self) -> StatusResponse | None:
        """The deployment's metadata; None until it has been fetched."""
        return self._async.metadata

    @property
    def generate_params(self) -> LLMParams:
        """Sampling parameters of calls that set none of their own. May be set."""
        return self._async.generate_params

    @generate_params.setter
    def generate_params(self, params: LLMParams) -> None:
        self._async.generate_params = params

    def status(self, *, refresh: bool = False, timeout: float | None = None) -> StatusResponse:
        """The deployment's metadata: as fetched before, unless `refresh`."""
        return self._loop.run(self._async.status(refresh=refresh, timeout=timeout))

    def get_action(
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
        """Actions of an RL policy.

        Args:
            observation: as the observation space: an array, a dict or a tuple of arrays; for several agents a dict by
                agent id.
            batched: all values have a leading batch dimension.
            hidden_state: of a recurrent policy: what the call before returned; None at an episode's start. Ignored by
                policies without one.
            info: "action_mask": 1 where an action is allowed, 0 where it is not; by agent id for several agents. Also
                "env_defined_actions". Other entries are ignored.
            env_defined_actions: actions that the environment dictates, NaN where it does not; by agent id.
            deterministic: take the most likely action, or sample. Default: as the policy was deployed.
            seed: makes sampled actions repeatable. Default: none.
            session_id: the server keeps the hidden state under this name. Default: the caller keeps it.

        Returns:
            The action (an array, for several agents a dict of arrays), and the hidden state or None. A Discrete
            space's action, not batched, is an array without dimensions: int() makes it a number.
        """
        return self._act(
            self._async.get_action(
                observation,
                batched=batched,
                hidden_state=hidden_state,
                info=info,
                env_defined_actions=env_defined_actions,
                deterministic=deterministic,
                seed=seed,
                session_id=session_id,
                timeout=timeout,
            )
        )

    def predict(
        self, inputs: ValueLike, *, batched: bool = False, timeout: float | None = None
    ) -> tuple[RLData, PredictResult]:
        """A supervised model's outputs for `inputs` (values as in `get_action`), and the metadata."""
        return self._act(self._async.predict(inputs, batched=batched, timeout=timeout))

    def generate(
        self,
        prompts: str | list[str],
        *,
        params: LLMParams | Mapping[str, Any] | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> LLMResults:
        """Completions of a language model, one a prompt.

        `params` override the agent's `generate_params` field by field; a dict may hold any sampling parameter of
        docs/sampling.md. `session_id` continues a chat, with one prompt; without it a new chat begins, whose id
        is in the result.
        """
        return self._loop.run(self._async.generate(prompts, params=params, session_id=session_id, timeout=timeout))

    def generate_stream(
        self,
        prompt: str,
        *,
        params: LLMParams | Mapping[str, Any] | None = None,
        session_id: str | None = None,
        timeout: float | None = None,
    ) -> TextStream:
        """The completion of one prompt, piece by piece: `for text in agent.generate_stream(...)`.

        Arguments as in `generate`. Nothing is checked or sent before the first piece is asked for. `timeout` is a
        deadline of the whole stream, which otherwise has none; the agent's own bounds the wait for each piece.
        """
        stream = self._async.generate_stream(prompt, params=params, session_id=session_id, timeout=timeout)
        return TextStream(stream, self._loop)

    def list_sessions(self, *, limit: int | None = None, timeout: float | None = None) -> list[SessionInfo]:
        """The caller's chat sessions with this deployment, the most recently updated first: all, or `limit`."""
        return self._loop.run(self._async.list_sessions(limit=limit, timeout=timeout))

    def get_session(self, session_id: str, *, timeout: float | None = None) -> SessionDetail:
        """A chat session and its messages. Another's, and one that never was, is ArenaInferenceError, status 404."""
        return self._loop.run(self._async.get_session(session_id, timeout=timeout))

    def delete_session(self, session_id: str, *, timeout: float | None = None) -> bool:
        """Deletes a chat session and its messages; False when there is none of the caller's. Again is fine."""
        return self._loop.run(self._async.delete_session(session_id, timeout=timeout))

    def close(self) -> None:
        """Closes the connection. Closing again is fine."""
        self._loop.close()
        if self._blocking is not None:
            self._blocking.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _act(self, work: Coroutine[Any, Any, T]) -> T:
        # The metadata is there, or the call is refused for want of it: nothing but the call itself could wait.
        return self._loop.run(work) if self._blocking is None else at_once(work)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} endpoint={self._async._place.shown!r}>"
