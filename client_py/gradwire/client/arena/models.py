"""What agents take and report: the document's frozen models, its fields first, then what gradwire adds.

Knows: names and defaults. Does not know: where the values come from (`results` does), nor their bounds: the server
checks those, and names the field.
"""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field, model_validator

from gradwire.client._convert.nearest import check_names
from gradwire.client.arena.brief import BriefModel


class LLMParams(BriefModel):
    """LLM sampling parameters. A name that is not known is an error that names the nearest one."""

    model_config = ConfigDict(frozen=True)

    max_new_tokens: int = 100
    """The maximum number of new tokens to generate."""
    temperature: float = 0.7
    """Divides the logits; 0 takes the most likely token."""
    top_p: float = 0.9
    """Keep the smallest set of tokens whose probabilities reach this."""
    do_sample: bool = True
    """False takes the most likely token each time; temperature, top_p, top_k and min_p then do nothing."""
    top_k: int | None = None
    """Keep this many of the most likely tokens. Default: all."""
    min_p: float | None = None
    """Drop tokens less likely than this times the most likely one. Default: none."""
    seed: int | None = None
    """Makes sampling repeatable. Default: none."""
    stop: str | tuple[str, ...] | None = None
    """The reply ends where this, or one of these, appears. Default: none."""
    log_probs: int | None = None
    """0 and above: the log-probs of the reply's tokens come with it. Default: not."""

    @model_validator(mode="before")
    @classmethod
    def _known_names(cls, values: Any) -> Any:
        if isinstance(values, dict):
            check_names("LLM parameter", values, cls.model_fields)
        return values


class AgentInfo(BriefModel):
    """Shape of a deployed agent."""

    model_config = ConfigDict(frozen=True)

    algo: str = ""
    """Name or algorithm."""
    multi_agent: bool = False
    """Observations and actions are dicts by agent id."""
    llm: bool = False
    """It is a language model: generate, generate_stream and sessions work."""
    recurrent: bool = False
    """It takes and returns a hidden state."""
    supervised: bool = False
    """It is a supervised model: predict works."""
    agent_ids: tuple[str, ...] = ()
    """Agents of a multi-agent policy."""
    observation_space: dict[str, Any] | None = None
    """Space of observations or inputs, as gymnasium describes it. None: not told, or a language model."""
    action_space: dict[str, Any] | None = None
    """Space of actions, likewise."""
    supports_action_mask: bool = False
    """Actions can be masked."""


class StatusResponse(BriefModel):
    """What a deployment says of itself. What it leaves out stays at its default; `agent` is None when it does not
    describe its shape at all."""

    model_config = ConfigDict(frozen=True)

    success: bool = True
    deployment_id: str = ""
    """The deployment's name."""
    instance_id: str = ""
    """This run of it; changes when it is redeployed."""
    agent: AgentInfo | None = None
    weight_version: int = 0
    """Version of the weights that it serves."""
    training_job_id: int = 0
    """Training job that the weights are of. 0: the model's own, or a bundle's."""
    memory_scope: str = ""
    """Who sees its chat sessions: "user" or "organization"; empty when it keeps none."""


class PredictResult(BriefModel):
    """Metadata of a prediction."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    batch_size: int
    """Rows predicted."""
    inference_time_ms: float
    """Time in the model, in milliseconds."""
    success: bool = True


class TokenUsage(BriefModel):
    """Token counts."""

    model_config = ConfigDict(frozen=True)

    prompt_tokens: int = 0
    """Tokens of the prompts, with the conversation before them."""
    completion_tokens: int = 0
    """Tokens sampled."""
    cached_tokens: int = 0
    """Prompt tokens that came from the prefix cache."""


class LLMCompletionResult(BriefModel):
    """A prompt and its completion."""

    model_config = ConfigDict(frozen=True)

    prompt: str = ""
    completion: str = ""
    session_id: str = ""
    """Chat session that both are stored in, also when it is new. Empty when nothing is stored."""
    finish_reason: str = ""
    """Why it ended: "stop", "length", "abort" or "error"."""
    stop_reason: str | int | None = None
    """The stop string or token id that ended it; None for the model's own end."""
    token_ids: tuple[int, ...] = Field(default=(), repr=False)
    """Tokens as sampled."""
    log_probs: tuple[float, ...] | None = Field(default=None, repr=False)
    """Log-prob of each token, natural logarithms. None unless LLMParams.log_probs asks for it."""
    num_dropped_messages: int = 0
    """Oldest messages of the session that did not fit into the context; they stay stored."""
    weight_version: int | None = None
    """Newest weights that sampled any of it. None without tokens."""


class LLMResults(BriefModel):
    """Completions, in the order of the prompts."""

    model_config = ConfigDict(frozen=True)

    results: list[LLMCompletionResult]
    batch_size: int
    """Completions."""
    inference_time_ms: float
    """Time in the model, in milliseconds."""
    tokens_per_second: float
    """Tokens sampled for each second in the model."""
    success: bool = True
    usage: TokenUsage = TokenUsage()

    @property
    def session_id(self) -> str:
        """Chat session of the only completion. ValueError when there are several: read each one's."""
        if len(self.results) != 1:
            raise ValueError(f"there are {len(self.results)} completions; read each one's session_id from .results")
        return self.results[0].session_id


class SessionInfo(BriefModel):
    """One chat session. Times are ISO 8601."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    session_id: str = ""
    created_at: str | None = None
    """When the session was opened."""
    last_updated: str | None = None
    """When the session was last written to."""
    num_messages: int = 0
    """Messages in it."""


class SessionMessage(BriefModel):
    """One message of a chat session."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    role: str = ""
    """Who spoke: "user", "assistant", "system" or "tool"."""
    content: str = ""
    created_at: str | None = None
    """When it was stored."""
    incomplete: bool = False
    """The reply broke off: what is here is what had been sampled."""


class SessionDetail(SessionInfo):
    """A chat session and its messages, the oldest first."""

    messages: list[SessionMessage] = Field(default_factory=list)
