"""From runs of agents to training batches."""

from gradwire.client.agentic.training.advantages import group_advantages
from gradwire.client.agentic.training.batch import to_training_batch
from gradwire.client.agentic.training.result import AgentBatch, BatchStats, DroppedRow, DropReason, RowOrigin
from gradwire.client.agentic.training.samples import Sample, SampleRow

__all__ = [
    "AgentBatch",
    "BatchStats",
    "DropReason",
    "DroppedRow",
    "RowOrigin",
    "Sample",
    "SampleRow",
    "group_advantages",
    "to_training_batch",
]
