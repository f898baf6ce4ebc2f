"""The document's import paths and calls, as a script that knows nothing of gradwire."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.arctic.test_compat import run
from tests.arena.fake import STATUS, FakeAgent

DOCUMENTED = """
import os
from agilerl.arena import Agent as _Agent
from agilerl.arena.exceptions import ArenaAuthError, ArenaInferenceError
from agilerl.arena.inference import (
    Agent, AgentInfo, LLMCompletionResult, LLMParams, LLMResults, PredictResult, RLData, SessionDetail, SessionInfo,
    SessionMessage, StatusResponse,
)
from agilerl.arena.inference.serde import deserialize, serialize

assert _Agent is Agent
agent = Agent(endpoint=os.environ["ENDPOINT"], api_key="arena_pat_1_2", timeout=30, generate_params=LLMParams())
assert isinstance(agent.metadata, StatusResponse) and isinstance(agent.metadata.agent, AgentInfo)
results = agent.generate(prompts="Hello", params={"max_new_tokens": 5}, session_id=None)
assert isinstance(results, LLMResults) and isinstance(results.results[0], LLMCompletionResult)
for token in agent.generate_stream("Hello", params=LLMParams(do_sample=False), session_id="s1"):
    print(token, end="")
(session,) = agent.list_sessions()
detail = agent.get_session(session.session_id)
assert isinstance(session, SessionInfo) and isinstance(detail, SessionDetail)
assert isinstance(detail.messages[0], SessionMessage)
assert agent.delete_session(session.session_id) is True
try:
    agent.predict([1.0])
except ArenaInferenceError as error:
    assert error.status_code == 0
assert "arena_pat" not in repr(agent)
agent.status(refresh=True)
assert deserialize(serialize(__import__("numpy").ones(2))).shape == (2,)
agent.close()
print(" done")
"""


def test_the_documents_calls_run_as_they_are_printed(
    fake: FakeAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.status = STATUS["llm"]
    monkeypatch.setenv("ENDPOINT", fake.address)
    # `--override`: Arena's own package may be installed for other tests.
    found = run(tmp_path, DOCUMENTED, "--override")
    assert (found.returncode, found.stdout) == (0, "Hello done\n"), found.stderr
