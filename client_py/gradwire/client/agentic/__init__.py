"""Agentic reinforcement learning: trajectories, the memory of agents, and training batches."""

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
    "MemoryConfig",
    "MemorySimple",
    "MemorySummary",
    "Outcome",
    "Step",
    "StepTrajectory",
    "SummaryClient",
    "SummaryGenerationError",
    "Trajectory",
    "check_trainable",
    "discounted_returns",
    "group_advantages",
    "to_training_batch",
]
