"""Memory of an agent's conversation."""

from gradwire.client.agentic.memory.config import MemoryConfig
from gradwire.client.agentic.memory.simple import MemorySimple, PromptReport
from gradwire.client.agentic.memory.summary import MemorySummary
from gradwire.client.agentic.memory.summary_client import SummaryClient, SummaryGenerationError
from gradwire.client.agentic.memory.tokens import HuggingFaceTokenCounter, SimpleTokenCounter, TokenCounter

__all__ = [
    "HuggingFaceTokenCounter",
    "MemoryConfig",
    "MemorySimple",
    "MemorySummary",
    "PromptReport",
    "SimpleTokenCounter",
    "SummaryClient",
    "SummaryGenerationError",
    "TokenCounter",
]
