"""`client.inference`: talk to a deployed agent: a language model, an RL policy or a supervised model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from gradwire.client._convert.inference import (
    action_from_proto,
    prediction_from_proto,
    put_optional,
    replies_from_proto,
    status_from_proto,
)
from gradwire.client._convert.large import with_value
from gradwire.client._convert.messages import made, put
from gradwire.client._convert.sampling import params_to_proto
from gradwire.client._convert.shared import Lent
from gradwire.client._core.arguments import check
from gradwire.client._core.connection import Connection
from gradwire.client._core.rpc import Rpc
from gradwire.client.aio.streams import AsyncReplyStream
from gradwire.client.errors import ResourceExhaustedError, UnimplementedError
from gradwire.client.types.inference import ActionResult, DeploymentStatus, Prediction, Replies, ValueLike
from gradwire.client.types.sampling import SamplingKeywords, SamplingParamsLike
from gradwire.v1 import inference_pb2 as pb

_SERVICE = "/gradwire.v1.InferenceService/"
_STATUS = Rpc(_SERVICE + "GetStatus", pb.GetStatusRequest, pb.GetStatusResponse, repeatable=True)
_ACTION = Rpc(_SERVICE + "GetAction", pb.GetActionRequest, pb.GetActionResponse, repeatable=True)
_ACTIONS = Rpc(
    _SERVICE + "GetActionStream",
    pb.GetActionStreamRequest,
    pb.GetActionStreamResponse,
    repeatable=True,
    streaming=True,
)
_FULL_S = 60.0
"""A server that had no room for another stream is not asked for one again so soon."""
_PREDICT = Rpc(_SERVICE + "Predict", pb.PredictRequest, pb.PredictResponse, repeatable=True)
# Replies are stored: sent twice, the conversation would hold the message twice.
_GENERATE = Rpc(_SERVICE + "GenerateReply", pb.GenerateReplyRequest, pb.GenerateReplyResponse, repeatable=False)
_GENERATE_STREAM = Rpc(
    _SERVICE + "GenerateReplyStream",
    pb.GenerateReplyStreamRequest,
    pb.GenerateReplyStreamResponse,
    repeatable=False,
    streaming=True,
)


class AsyncInference:
    """Talks to a deployment: `deployment_id`, or the only one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def get_status(self, *, deployment_id: str = "", timeout: float | None = None) -> DeploymentStatus:
        """What the deployment is. It takes no token; whoever sends none is told less (docs/security.md)."""
        request = put(pb.GetStatusRequest(), deployment_id=deployment_id)
        return status_from_proto(await self._connection.unary(_STATUS, request, timeout=timeout))

    async def get_action(
        self,
        observation: ValueLike,
        *,
        batched: bool = False,
        hidden_state: ValueLike = None,
        action_mask: ValueLike = None,
        env_defined_actions: ValueLike = None,
        deterministic: bool | None = None,
        seed: int | None = None,
        session_id: str = "",
        deployment_id: str = "",
        in_turn: bool | None = None,
        timeout: float | None = None,
    ) -> ActionResult:
        """Actions of an RL policy.

        Values are array-likes, or dicts (by key, by agent) and tuples of such. `batched` says that all of them
        have a leading batch dimension. Pass the `hidden_state` of the result before to a recurrent policy, or a
        `session_id` for the server to keep it. `action_mask` is 1 where an action is allowed.
        `env_defined_actions` replace the policy's own, but for NaN. `deterministic` takes the most likely action,
        or samples (default: as it was deployed), repeatably with a `seed`. InvalidArgumentError names what does not
        fit the policy's spaces, and a deployment of another kind (WRONG_DEPLOYMENT_KIND).

        `in_turn` is for control loops: over gRPC such calls take turns on one stream that stays open, which costs
        about half the time of a call of its own.
        """
        request = made(
            pb.GetActionRequest,
            deployment_id=deployment_id,
            batched=batched,
            deterministic=deterministic,
            seed=seed,
            session_id=session_id,
        )
        if in_turn is not None:
            check(in_turn, "in_turn", bool, "True or False")
        with Lent(self._connection.segments) as lent:
            put_optional(request.hidden_state, hidden_state, "hidden_state", lent)
            put_optional(request.action_mask, action_mask, "action_mask", lent)
            put_optional(request.env_defined_actions, env_defined_actions, "env_defined_actions", lent)
            whole = with_value(request, "observation", observation, lent)
            # With a session, a second sending would advance the hidden state twice.
            repeatable = not session_id
            if whole is request and not lent.any and self._connection.turns(_ACTIONS, in_turn):
                turn = pb.GetActionStreamRequest(request=request)
                try:
                    found = await self._connection.in_turn(_ACTIONS, turn, timeout=timeout, repeatable=repeatable)
                    return action_from_proto(found.response)
                except UnimplementedError:  # an older server
                    self._connection.refuse_turns(_ACTIONS)
                except ResourceExhaustedError as error:
                    if error.reason != "TOO_MANY_STREAMS":
                        raise
                    self._connection.refuse_turns(_ACTIONS, _FULL_S)
            response = await lent.unary(self._connection, _ACTION, whole, timeout=timeout, repeatable=repeatable)
        return action_from_proto(response)

    async def predict(
        self, inputs: ValueLike, *, batched: bool = False, deployment_id: str = "", timeout: float | None = None
    ) -> Prediction:
        """Predictions of a supervised model for `inputs`; values and `batched` as in `get_action`."""
        request = made(pb.PredictRequest, deployment_id=deployment_id, batched=batched)
        with Lent(self._connection.segments) as lent:
            whole = with_value(request, "inputs", inputs, lent)
            return prediction_from_proto(await lent.unary(self._connection, _PREDICT, whole, timeout=timeout))

    async def generate(
        self,
        prompts: str | Sequence[str],
        params: SamplingParamsLike | None = None,
        *,
        session_id: str | None = None,
        deployment_id: str = "",
        timeout: float | None = None,
        **sampling: Unpack[SamplingKeywords],
    ) -> Replies:
        """Replies of a language model, whole; one conversation each, or one message of `session_id`.

        `params` and keywords such as `max_tokens=64` override the deployment's own. Never sent again by itself: a
        message would be stored twice.
        """
        request = pb.GenerateReplyRequest(params=params_to_proto(params, sampling))
        put(request, deployment_id=deployment_id, prompts=prompts, session_id=session_id)
        return replies_from_proto(await self._connection.unary(_GENERATE, request, timeout=timeout))

    def generate_stream(
        self,
        prompt: str,
        params: SamplingParamsLike | None = None,
        *,
        session_id: str | None = None,
        deployment_id: str = "",
        timeout: float | None = None,
        **sampling: Unpack[SamplingKeywords],
    ) -> AsyncReplyStream:
        """The reply of a language model, as it comes. The call begins at once; arguments as in `generate`."""
        request = pb.GenerateReplyStreamRequest(params=params_to_proto(params, sampling))
        put(request, deployment_id=deployment_id, prompt=prompt, session_id=session_id)
        return AsyncReplyStream(self._connection.stream(_GENERATE_STREAM, request, timeout=timeout), prompt)
