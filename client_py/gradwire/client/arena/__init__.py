"""Deployed agents: language models, RL policies and supervised models, as Arena's document shows them.

    from gradwire.client.arena import Agent

    with Agent("grpc://127.0.0.1:50051/cartpole") as agent:
        action, _ = agent.get_action([0.0, 0.1, 0.0, -0.1])

Thin: everything goes through `gradwire.client.AsyncClient`. docs/agents.md has the rest.
"""

from __future__ import annotations

from gradwire.client.arena.agent import Agent
from gradwire.client.arena.aio import AsyncAgent
from gradwire.client.arena.control import ArenaClient, deploy_agent, open_inference_agent
from gradwire.client.arena.errors import (
    ArenaAPIError,
    ArenaAuthError,
    ArenaError,
    ArenaInferenceError,
    ArenaValidationError,
)
from gradwire.client.arena.models import (
    AgentInfo,
    LLMCompletionResult,
    LLMParams,
    LLMResults,
    PredictResult,
    SessionDetail,
    SessionInfo,
    SessionMessage,
    StatusResponse,
    TokenUsage,
)
from gradwire.client.arena.serde import deserialize, get_batch_size, serialize
from gradwire.client.arena.streams import AsyncTextStream, TextStream
from gradwire.client.arena.types import RLData, SerializedRLData

AgentMetadata = StatusResponse
GenerateCompletion = LLMCompletionResult
GenerateParams = LLMParams
GenerateResult = LLMResults

__all__ = [
    "Agent",
    "AgentInfo",
    "AgentMetadata",
    "ArenaAPIError",
    "ArenaAuthError",
    "ArenaClient",
    "ArenaError",
    "ArenaInferenceError",
    "ArenaValidationError",
    "AsyncAgent",
    "AsyncTextStream",
    "GenerateCompletion",
    "GenerateParams",
    "GenerateResult",
    "LLMCompletionResult",
    "LLMParams",
    "LLMResults",
    "PredictResult",
    "RLData",
    "SerializedRLData",
    "SessionDetail",
    "SessionInfo",
    "SessionMessage",
    "StatusResponse",
    "TextStream",
    "TokenUsage",
    "deploy_agent",
    "deserialize",
    "get_batch_size",
    "open_inference_agent",
    "serialize",
]
