"""What is refused before anything is sent. All errors are ArenaInferenceError with status 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gradwire.client._core.arguments import given, items
from gradwire.client.arena.errors import ArenaInferenceError
from gradwire.client.arena.models import AgentInfo
from gradwire.client.arena.types import without_nothing

Modality = Literal["rl", "supervised", "llm"]
_WRONG_KIND: Mapping[Modality, str] = {
    "rl": "Deployment is not RL. Use predict() or generate().",
    "supervised": "Deployment is not supervised. Use get_action() or generate().",
    "llm": "Deployment is not an LLM. Use get_action() or predict().",
}
METADATA_NEEDED = "Metadata not loaded. Call status() or construct with probe_on_init=True."


def check_modality(agent: AgentInfo | None, wanted: Modality) -> None:
    """The deployment is of this kind. One that does not say so (None) is left to the server."""
    if agent is None:
        return
    actual: Modality = "llm" if agent.llm else "supervised" if agent.supervised else "rl"
    if actual != wanted:
        raise ArenaInferenceError(_WRONG_KIND[wanted])


def check_prompts(prompts: Any) -> list[str]:
    """One prompt or several, none of them blank."""
    several = [prompts] if isinstance(prompts, str) else items(prompts, "prompts", "text or a list of such")
    if not several:
        raise ArenaInferenceError("At least one prompt is required.")
    for index, prompt in enumerate(several):
        if not isinstance(prompt, str) or not prompt.strip():
            raise ArenaInferenceError(f"Prompt at index {index} is empty.")
    return several


def check_session_id(session_id: Any) -> str:
    """The id without white space around it."""
    if not isinstance(session_id, str) or not session_id.strip():
        raise ArenaInferenceError("session_id must be a non-empty string.")
    return session_id.strip()


def action_inputs(
    agent: AgentInfo | None, observation: Any, info: Mapping[str, Any] | None, env_defined_actions: Any
) -> tuple[Any, Any]:
    """The action mask and the actions that the environment dictates, of a call's arguments.

    Of several agents all are dicts by agent id; an agent with None, or left out, has no mask and is not dictated to.
    """
    if not isinstance(info, Mapping | None):
        raise ArenaInferenceError(f"info is {given(info)}; it takes a dict, such as {{'action_mask': ...}}")
    facts = info or {}
    mask = facts.get("action_mask")
    dictated = facts.get("env_defined_actions") if env_defined_actions is None else env_defined_actions
    if agent is None or not agent.multi_agent:
        return mask, dictated
    if not isinstance(observation, Mapping):
        raise ArenaInferenceError("Multi-agent deployments take observations as a dict keyed by agent id.")
    for name, value in (("action_mask", mask), ("env_defined_actions", dictated)):
        if value is not None and not isinstance(value, Mapping):
            raise ArenaInferenceError(f"Multi-agent {name} must be a dict keyed by agent id.")
    return without_nothing(mask), without_nothing(dictated)
