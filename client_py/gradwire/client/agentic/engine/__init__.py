"""Agent engines: the class that they derive from, and what loads and runs them."""

from gradwire.client.agentic.engine.completions import Completion, CompletionError, Completions
from gradwire.client.agentic.engine.deadline import deadline_in, remaining_s
from gradwire.client.agentic.engine.failures import EngineBatch, TaskFailure
from gradwire.client.agentic.engine.loading import EngineLoadError, load_engine, load_engine_class
from gradwire.client.agentic.engine.rollout_engine import Episode, RolloutEngine
from gradwire.client.agentic.engine.running import run_engine
from gradwire.client.agentic.engine.tasks import run_tasks
from gradwire.client.agentic.engine.tools import run_tool
from gradwire.client.agentic.engine.wrapper import BaseEngineWrapper

__all__ = [
    "BaseEngineWrapper",
    "Completion",
    "CompletionError",
    "Completions",
    "EngineBatch",
    "EngineLoadError",
    "Episode",
    "RolloutEngine",
    "TaskFailure",
    "deadline_in",
    "load_engine",
    "load_engine_class",
    "remaining_s",
    "run_engine",
    "run_tasks",
    "run_tool",
]
