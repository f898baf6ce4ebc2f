"""The document's names, signatures, defaults and frozenness; and that AsyncAgent has the same surface."""

from __future__ import annotations

import inspect

import pytest
from pydantic import BaseModel, ValidationError

from gradwire.client import arena
from gradwire.client.arena import (
    Agent,
    AgentInfo,
    AsyncAgent,
    LLMCompletionResult,
    LLMParams,
    LLMResults,
    PredictResult,
    SessionDetail,
    SessionMessage,
)
from gradwire.client.arena.brief import BriefModel

# The document's fields with their defaults; ... is required.
MODELS: dict[str, dict[str, object]] = {
    "LLMParams": {"max_new_tokens": 100, "temperature": 0.7, "top_p": 0.9, "do_sample": True},
    "StatusResponse": {"success": True, "deployment_id": "", "instance_id": "", "agent": None},
    "AgentInfo": {"algo": "", "multi_agent": False, "llm": False, "recurrent": False, "supervised": False},
    "PredictResult": {"batch_size": ..., "inference_time_ms": ..., "success": True},
    "LLMCompletionResult": {"prompt": "", "completion": ""},
    "LLMResults": {
        "results": ..., "batch_size": ..., "inference_time_ms": ..., "tokens_per_second": ..., "success": True
    },
    "SessionInfo": {"session_id": "", "created_at": None, "last_updated": None},
    "SessionMessage": {"role": "", "content": ""},
    "SessionDetail": {"session_id": "", "created_at": None, "last_updated": None, "messages": []},
}  # fmt: skip
LENIENT = {"PredictResult", "SessionInfo", "SessionMessage", "SessionDetail"}
METHODS = {
    "__init__": "self, endpoint, *, api_key=None, org_key=None, external_user_id=None, timeout=30, "
    "generate_params=None, probe_on_init=True",
    "status": "self, *, refresh=False",
    "get_action": "self, observation, *, batched=False, hidden_state=None, info=None, env_defined_actions=None",
    "predict": "self, inputs, *, batched=False",
    "generate": "self, prompts, *, params=None, session_id=None",
    "generate_stream": "self, prompt, *, params=None, session_id=None",
    "list_sessions": "self, *",
    "get_session": "self, session_id, *",
    "delete_session": "self, session_id, *",
    "close": "self",
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_as_documented(name: str) -> None:
    model: type[BaseModel] = getattr(arena, name)
    fields = {key: field.get_default(call_default_factory=True) for key, field in model.model_fields.items()}
    documented = MODELS[name]
    for key, default in documented.items():
        if default is ...:
            assert model.model_fields[key].is_required()
        else:
            assert fields[key] == default
    added = [field for key, field in model.model_fields.items() if key not in documented]
    assert not any(field.is_required() for field in added)
    assert model.model_config == ({"extra": "ignore"} if name in LENIENT else {}) | {"frozen": True}
    required = {key: 0 for key, default in documented.items() if default is ...}
    made = model(**{**required, "results": []} if "results" in required else required)
    with pytest.raises(ValidationError):
        setattr(made, next(iter(documented)), None)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_takes_what_the_document_says_and_async_the_same(name: str) -> None:
    parameters = list(inspect.signature(getattr(Agent, name)).parameters.values())
    positional = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    shown = [p.name for p in positional] + (["*"] if keywords else [])
    shown += [f"{p.name}={p.default}" for p in keywords]
    documented = METHODS[name].split(", ")
    assert shown[: len(documented)] == documented
    assert inspect.signature(getattr(AsyncAgent, name)).parameters == inspect.signature(getattr(Agent, name)).parameters


def test_the_async_twin_has_every_method() -> None:
    def public(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    values = {"serialize", "deserialize", "get_batch_size", "metadata", "generate_params"}
    assert public(Agent) - values == public(AsyncAgent)


def test_a_misspelt_parameter_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(ValidationError, match="did you mean 'max_new_tokens'"):
        LLMParams(max_new_token=5)  # type: ignore[call-arg]


def test_a_model_with_much_in_it_shows_itself_in_a_few_lines() -> None:
    assert all(issubclass(getattr(arena, name), BriefModel) for name in MODELS)
    # What is small is shown as pydantic shows it.
    found = PredictResult(batch_size=3, inference_time_ms=0.5)
    assert repr(found) == "PredictResult(batch_size=3, inference_time_ms=0.5, success=True)"
    assert str(found) == "batch_size=3 inference_time_ms=0.5 success=True"
    space = {"type": "Box", "shape": [4], "low": [-1.0] * 4, "high": [1.0] * 4, "dtype": "float32"}
    assert f"observation_space={space!r}, action_space=None" in repr(AgentInfo(observation_space=space))

    completion = LLMCompletionResult(prompt="p" * 500, completion="word " * 500, token_ids=tuple(range(500)))
    results = LLMResults(results=[completion] * 64, batch_size=64, inference_time_ms=1, tokens_per_second=1)
    camera = {"type": "Box", "shape": [84, 84, 3], "low": [0.0] * 21168, "high": [255.0] * 21168}
    info = AgentInfo(algo="DQN", agent_ids=tuple(map(str, range(100))), observation_space=camera)
    message = SessionMessage(role="user", content="c" * 3000)
    session = SessionDetail(session_id="s", messages=[message] * 200)
    for large in (results, info, session, LLMParams(stop=("stop",) * 300)):
        for shown in (repr(large), str(large)):
            assert len(shown) < 1200 and " more" in shown
        again = type(large).model_validate(large.model_dump())
        assert again == large and repr(again) == repr(large)
    assert "completion='word word" in repr(results) and "… (2500 characters)" in repr(results)
    assert "… 62 more]" in repr(results) and repr(results).endswith("cached_tokens=0))")
    assert "agent_ids=('0', '1'" in repr(info) and "messages=[SessionMessage(role='user', content='ccc" in repr(session)
    assert results.model_dump()["results"][0]["token_ids"] == tuple(range(500))
