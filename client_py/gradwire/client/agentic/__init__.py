"""Agentic reinforcement learning: engines that run agents, their memory, trajectories, and training batches."""

from gradwire.client.agentic.engine import (
    BaseEngineWrapper,
    Completion,
    CompletionError,
    Completions,
    EngineBatch,
    EngineLoadError,
    TaskFailure,
    deadline_in,
    load_engine,
    load_engine_class,
    remaining_s,
    run_engine,
    run_tasks,
)
from gradwire.client.agentic.memory import (
    MemoryConfig,
    MemorySimple,
    MemorySummary,
    SummaryClient,
    SummaryGenerationError,
)
from gradwire.client.agentic.outcomes import Outcome
from gradwire.client.agentic.training import AgentBatch, group_advantages, to_training_batch
from gradwire.client.agentic.trajectory import Step, StepTrajectory, Trajectory, check_trainable, discounted_returns

__all__ = [
    "AgentBatch",
    "BaseEngineWrapper",
    "Completion",
    "CompletionError",
    "Completions",
    "EngineBatch",
    "EngineLoadError",
    "MemoryConfig",
    "MemorySimple",
    "MemorySummary",
    "Outcome",
    "Step",
    "StepTrajectory",
    "SummaryClient",
    "SummaryGenerationError",
    "TaskFailure",
    "Trajectory",
    "check_trainable",
    "deadline_in",
    "discounted_returns",
    "group_advantages",
    "load_engine",
    "load_engine_class",
    "remaining_s",
    "run_engine",
    "run_tasks",
    "to_training_batch",
]
