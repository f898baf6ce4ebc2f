"""From the client's results to the document's models."""

from __future__ import annotations

from datetime import datetime

from gradwire.client.arena.models import (
    AgentInfo,
    LLMCompletionResult,
    LLMResults,
    PredictResult,
    SessionDetail,
    SessionInfo,
    SessionMessage,
    StatusResponse,
    TokenUsage,
)
from gradwire.client.types.inference import (
    Conversation,
    DeploymentKind,
    DeploymentStatus,
    MemoryScope,
    Prediction,
    Replies,
    Reply,
    Session,
)
from gradwire.client.types.sampling import Usage


def status_of(status: DeploymentStatus) -> StatusResponse:
    """What a deployment says of itself."""
    scope = status.memory_scope
    return StatusResponse(
        deployment_id=status.deployment_id,
        instance_id=status.instance_id,
        agent=_agent_of(status) if status.kind is not DeploymentKind.UNSPECIFIED else None,
        weight_version=status.weight_version,
        training_job_id=status.training_job_id,
        memory_scope="" if scope is MemoryScope.UNSPECIFIED else scope.value,
    )


def _agent_of(status: DeploymentStatus) -> AgentInfo:
    agent = status.agent
    return AgentInfo(
        algo=agent.name,
        multi_agent=bool(agent.agent_ids),
        llm=status.kind is DeploymentKind.LLM,
        recurrent=agent.recurrent,
        supervised=status.kind is DeploymentKind.SUPERVISED,
        agent_ids=agent.agent_ids,
        observation_space=dict(agent.observation_space) or None,
        action_space=dict(agent.action_space) or None,
        supports_action_mask=agent.supports_action_mask,
    )


def predict_result(prediction: Prediction) -> PredictResult:
    """What is known of a prediction beside its values."""
    return PredictResult(batch_size=prediction.batch_size, inference_time_ms=prediction.inference_s * 1e3)


def results_of(replies: Replies) -> LLMResults:
    """Completions, in the order of the prompts."""
    rate = replies.usage.completion_tokens / replies.inference_s if replies.inference_s else 0.0
    return LLMResults(
        results=[completion_of(reply) for reply in replies.replies],
        batch_size=len(replies.replies),
        inference_time_ms=replies.inference_s * 1e3,
        tokens_per_second=rate,
        usage=usage_of(replies.usage),
    )


def completion_of(reply: Reply) -> LLMCompletionResult:
    """A prompt and its completion."""
    completion = reply.completion
    log_probs = completion.log_probs
    return LLMCompletionResult(
        prompt=reply.prompt,
        completion=completion.text,
        session_id=reply.session_id,
        finish_reason=completion.finish_reason.value,
        stop_reason=completion.stop_reason,
        token_ids=tuple(completion.token_ids.tolist()),
        log_probs=None if log_probs is None else tuple(log_probs.tolist()),
        num_dropped_messages=reply.num_dropped_messages,
        weight_version=completion.weight_version,
    )


def usage_of(usage: Usage) -> TokenUsage:
    """Token counts."""
    return TokenUsage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens,
    )


def session_of(session: Session) -> SessionInfo:
    """One chat session."""
    return SessionInfo(
        session_id=session.session_id,
        created_at=_time(session.created_at),
        last_updated=_time(session.updated_at),
        num_messages=session.num_messages,
    )


def conversation_of(conversation: Conversation) -> SessionDetail:
    """A chat session and its messages."""
    messages = [
        SessionMessage(role=m.role, content=m.content, created_at=_time(m.created_at), incomplete=m.incomplete)
        for m in conversation.messages
    ]
    return SessionDetail(**session_of(conversation.session).model_dump(), messages=messages)


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
