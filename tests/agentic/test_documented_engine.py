"""The document's engine and its HTTP snippets, run by `gradwire.client.compat` on a real server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving import ServerProcess

# Word for word; the document leaves `import torch` to the reader.
MOCK = """
import torch

from agentic_rl import BaseEngineWrapper, Trajectory

class MockEngineWrapper(BaseEngineWrapper):
    def initialize(self):
        print("Initializing mock engine...")

    def generate_agent_trajectories_async(self, tasks):
        return [Trajectory(idx=0, prompt_tokens=torch.tensor([7, 8, 9]), response_tokens=torch.tensor([10, 11, 12]),
                           response_masks=torch.tensor([1, 1, 1]), trajectory_reward=2.0,
                           chat_completions=[{"role": "assistant", "content": "test"}],
                           metrics={"steps": 1, "reward_time": 2.0, "env_time": 3.0, "llm_time": 4.0, "total_time": 9.0})]

MockEngine = MockEngineWrapper(agent_name="mock_agent_name",
                               tokenizer=...,               # Text tokenizer object
                               sampling_params={"mock":"sampling_params"},
                               max_prompt_length=128*1024,
                               max_response_length=8*1024,
                               n_parallel_agents=16,
                               max_steps=8)
trajectories = MockEngine.generate_agent_trajectories_async()
"""  # noqa: E501 - as printed

AFTER_MOCK = """
from gradwire.client.agentic import run_engine
assert trajectories[0].response_tokens.tolist() == [10, 11, 12]
assert (trajectories[0].trajectory_reward, trajectories[0].metrics["res_reward"]) == (2.0, 0.0)
batch = run_engine(MockEngine, [{"question": "2 + 2?"}, {"question": "3 + 3?"}])
assert ([t.idx for t in batch.trajectories], [f.idx for f in batch.failures]) == ([0], [1])
"""

# The bodies of both snippets, word for word, in the method of an engine that is loaded from its file.
SNIPPETS = """
import aiohttp
from agentic_rl import BaseEngineWrapper, MemoryConfig, MemorySummary, Step, StepTrajectory, Trajectory

class SnippetEngine(BaseEngineWrapper):
    def initialize(self):
        pass

    async def generate_agent_trajectories_async(self, tasks):
        completions_request = {"prompt": "hello", "max_tokens": 5}

        base_url = f"http://{self.server_addresses[0]}/v1/completions" # Use the v1/completions API.
        headers = {"Content-Type": "application/json"}

        async with aiohttp.ClientSession() as session:
            async with session.post(base_url, headers=headers, json=completions_request) as response:
                if response.status != 200:
                    err_msg = await response.text()
                    raise Exception(f"Http request failed. status = {response.status}: {err_msg}")
                result = await response.json()
        over_http = result["choices"][0]["text"]

        completions_request = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}

        base_url = f"http://{self.server_addresses[0]}/v1/chat/completions" # Use the v1/chat/completions API.
        headers = {"Content-Type": "application/json"}

        async with aiohttp.ClientSession() as session:
            async with session.post(base_url, headers=headers, json=completions_request) as response:
                if response.status != 200:
                    err_msg = await response.text()
                    raise Exception(f"Http request failed. status = {response.status}: {err_msg}")
                result = await response.json()
        assert result["choices"][0]["message"]["role"] == "assistant"

        completions_request = {"prompt": "hello", "max_tokens": 5}
        result = self.completions[0](completions_request)
        assert result["choices"][0]["text"] and over_http
        return []
"""

USE_SNIPPETS = """
import asyncio, sys
from agentic_rl.runner import load_engine
from agentic_rl.memory.summary_client import SummaryClient, SummaryGenerationError
from agentic_rl.memory.memory_simple import MemorySimple
from agentic_rl.memory.token_counter import HuggingFaceTokenCounter, SimpleTokenCounter

engine = load_engine("snippets.py", sys.argv[1:], agent_name="snippets", tokenizer=...)
assert await engine.generate_agent_trajectories_async([{"question": "?"}]) == []
"""


@pytest.mark.parametrize("program", [MOCK + AFTER_MOCK, USE_SNIPPETS], ids=["engine", "snippets"])
def test_the_documents_examples_run_as_printed(server: ServerProcess, tmp_path: Path, program: str) -> None:
    (tmp_path / "snippets.py").write_text(SNIPPETS)
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-m", "gradwire.client.compat", "program.py", server.doors["http"]],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
