"""Agentic reinforcement learning: trajectories and the memory of agents."""

from gradwire.client.agentic.memory import (
    MemoryConfig,
    MemorySimple,
    MemorySummary,
    SummaryClient,
    SummaryGenerationError,
)
from gradwire.client.agentic.trajectory import Step, StepTrajectory, Trajectory, check_trainable, discounted_returns

__all__ = [
    "MemoryConfig",
    "MemorySimple",
    "MemorySummary",
    "Step",
    "StepTrajectory",
    "SummaryClient",
    "SummaryGenerationError",
    "Trajectory",
    "check_trainable",
    "discounted_returns",
]
