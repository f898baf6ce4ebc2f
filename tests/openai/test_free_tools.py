"""Tools that the model may call or not, on a real server: the client sees a call, the rollout the tokens that it is."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from gradwire.client import Client
from tests.serving import ServerProcess

WRITTEN = '<tool_call>\n{"name": "add", "arguments": {"a": 5}}\n</tool_call>'
ADD: Any = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_the_model_writes_by_itself_is_read_and_recorded(server: ServerProcess, stream: bool) -> None:
    options: Any = {
        "model": "m", "messages": [{"role": "user", "content": "5?"}], "tools": [ADD], "max_tokens": 100,
        # A random model would write anything; the parser of calls does not know that it had no choice.
        "extra_body": {"structured_outputs": {"choice": [WRITTEN]}},
    }  # fmt: skip
    with (
        Client(server.address) as client,
        client.rollouts.open() as rollout,
        openai.OpenAI(base_url=rollout.base_url, api_key="-", max_retries=0) as agent,
    ):
        name = arguments = ""
        if stream:
            for chunk in agent.chat.completions.create(**options, stream=True):
                for part in chunk.choices[0].delta.tool_calls or []:
                    name += (part.function and part.function.name) or ""
                    arguments += (part.function and part.function.arguments) or ""
                reason = chunk.choices[0].finish_reason
        else:
            (one,) = agent.chat.completions.create(**options).choices
            (call,) = one.message.tool_calls or []
            name, arguments, reason = call.function.name, call.function.arguments, one.finish_reason
        assert (name, arguments.replace(" ", ""), reason) == ("add", '{"a":5}', "tool_calls")
        rollout.finish()
        (found,) = client.rollouts.collect(rollout.rollout_id)
        client.rollouts.discard(rollout.rollout_id)
    (row,) = found.rows
    sampled = bytes(row.token_ids[row.loss_mask & (row.token_ids < 256)].astype("uint8").tolist()).decode()
    assert sampled == WRITTEN
