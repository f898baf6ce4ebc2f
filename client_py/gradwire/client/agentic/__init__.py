"""Agentic reinforcement learning: engines that run agents, their memory, trajectories, and training batches."""

from gradwire.client.agentic.engine import (
    BaseEngineWrapper,
    Completion,
    CompletionError,
    Completions,
    EngineBatch,
    EngineLoadError,
    Episode,
    RolloutEngine,
    TaskFailure,
    deadline_in,
    load_engine,
    load_engine_class,
    remaining_s,
    run_engine,
    run_tasks,
    run_tool,
)
from gradwire.client.agentic.memory import (
    MemoryConfig,
    MemorySimple,
    MemorySummary,
    SummaryClient,
    SummaryGenerationError,
)
from gradwire.client.agentic.outcomes import Outcome
from gradwire.client.agentic.recorded import trajectory_of
from gradwire.client.agentic.segments import Segment
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
    "Episode",
    "MemoryConfig",
    "MemorySimple",
    "MemorySummary",
    "Outcome",
    "RolloutEngine",
    "Segment",
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
    "run_tool",
    "to_training_batch",
    "trajectory_of",
]
