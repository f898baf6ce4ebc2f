"""`client.inference`: talk to a deployed agent: a language model, an RL policy or a supervised model.

Generated from `gradwire.client.aio.inference` by scripts/gen_sync_client.py; edit that instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from gradwire.client.aio.inference import AsyncInference
from gradwire.client.sync.portal import Portal
from gradwire.client.sync.streams import ReplyStream
from gradwire.client.types.inference import ActionResult, DeploymentStatus, Prediction, Replies, ValueLike
from gradwire.client.types.sampling import SamplingKeywords, SamplingParamsLike


class Inference:
    """Talks to a deployment: `deployment_id`, or the only one."""

    def __init__(self, client: AsyncInference, loop: Portal) -> None:
        self._async = client
        self._loop = loop

    def get_status(self, *, deployment_id: str = "", timeout: float | None = None) -> DeploymentStatus:
        """What the deployment is. It takes no token; whoever sends none is told less (docs/security.md)."""
        return self._loop.run(self._async.get_status(deployment_id=deployment_id, timeout=timeout))

    def get_action(
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
        return self._loop.run(
            self._async.get_action(
                observation,
                batched=batched,
                hidden_state=hidden_state,
                action_mask=action_mask,
                env_defined_actions=env_defined_actions,
                deterministic=deterministic,
                seed=seed,
                session_id=session_id,
                deployment_id=deployment_id,
                in_turn=in_turn,
                timeout=timeout,
            )
        )

    def predict(
        self, inputs: ValueLike, *, batched: bool = False, deployment_id: str = "", timeout: float | None = None
    ) -> Prediction:
        """Predictions of a supervised model for `inputs`; values and `batched` as in `get_action`."""
        return self._loop.run(
            self._async.predict(inputs, batched=batched, deployment_id=deployment_id, timeout=timeout)
        )

    def generate(
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
        return self._loop.run(
            self._async.generate(
                prompts, params, session_id=session_id, deployment_id=deployment_id, timeout=timeout, **sampling
            )
        )

    def generate_stream(
        self,
        prompt: str,
        params: SamplingParamsLike | None = None,
        *,
        session_id: str | None = None,
        deployment_id: str = "",
        timeout: float | None = None,
        **sampling: Unpack[SamplingKeywords],
    ) -> ReplyStream:
        """The reply of a language model, as it comes. The call begins at once; arguments as in `generate`."""
        return ReplyStream(
            self._loop.call(
                lambda: self._async.generate_stream(
                    prompt, params, session_id=session_id, deployment_id=deployment_id, timeout=timeout, **sampling
                )
            ),
            self._loop,
        )
