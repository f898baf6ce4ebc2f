"""`GET /status`: what a deployment is. It takes no credential, as the Arena's does not, and so says little more."""

from __future__ import annotations

from gradwire.server.domain.caller import current_caller
from gradwire.server.domain.deployments import DeploymentKind
from gradwire.server.domain.inference import Inference
from gradwire.server.http.arena.answers import Answer
from gradwire.server.http.arena.asked import Asked


async def get(inference: Inference, asked: Asked, answer: Answer) -> None:
    """No field that the clients do not know: they refuse an answer that has one."""
    await asked.no_body()
    found = inference.status(current_caller(), asked.deployment_id)
    policy = found.policy
    agent = {
        "algo": found.short_name,
        "multi_agent": policy is not None and bool(policy.agent_ids),
        "llm": found.kind is DeploymentKind.LLM,
        "recurrent": policy is not None and policy.recurrent,
        "supervised": found.kind is DeploymentKind.SUPERVISED,
    }
    await answer.json(
        {
            "success": True,
            "deployment_id": found.deployment_id,
            "instance_id": found.instance_id,
            "agent": agent,
        }
    )
