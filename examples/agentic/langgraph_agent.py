"""An agent on LangGraph, with LangChain's ChatOpenAI, as an engine. Needs langgraph and langchain-openai.

It is no script: a program of yours plays it, on a server that was started with `gradwire serve --http 127.0.0.1:8080`:

    from gradwire.client.agentic import load_engine, run_engine

    engine = load_engine("langgraph_agent.py", ["127.0.0.1:8080"], agent_name="graph", tokenizer=...)
    batch = run_engine(engine, [{"question": "What is 17 * 3?", "ground_truth": "51"}])

The graph is an ordinary one. That the base URL is a rollout's is all that it takes to train on what the model sampled.
The server must know how its model writes tool calls: `sampler.tool_call_parser`.
"""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

import openai
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from gradwire.client import AsyncOpenRollout
from gradwire.client.agentic import Episode, Outcome, RolloutEngine, remaining_s

SYSTEM = "Use the tools to work out the answer. Your last message is the answer: a number, and nothing else."
_ROLES = {SystemMessage: "system", HumanMessage: "user", AIMessage: "assistant", ToolMessage: "tool"}
# What the server records in any case, and what only the documented profile knows.
_NOT_SENT = {"logprobs", "detokenize", "model_name"}


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@tool
def multiply(a: int, b: int) -> int:
    """Multiplies two numbers."""
    return a * b


class LangGraphEngine(RolloutEngine):
    """A model and its tools, in turn; the reward is 1 for the right answer."""

    tools: ClassVar[list[Any]] = [add, multiply]
    first_tool: ClassVar[str | None] = None
    """Tool that the first reply must call. None: the model is free to."""

    async def play(self, rollout: AsyncOpenRollout, task: dict[str, Any]) -> Episode:
        """One question, at most `max_steps` replies."""
        state: dict[str, Any] = {"messages": [SystemMessage(SYSTEM), HumanMessage(str(task["question"]))]}
        outcome = Outcome.OK
        async with openai.DefaultAsyncHttpxClient() as http:  # LangChain's own would stay open for ever
            steps = self._graph(rollout, http).astream(
                state, {"recursion_limit": 2 * self.max_steps - 1}, stream_mode="values"
            )
            try:
                async for reached in steps:
                    state = reached  # and so what was said is there when a later step fails
            except GraphRecursionError:
                outcome = Outcome.TRUNCATED
            except openai.BadRequestError as error:
                if "context length" not in str(error):
                    raise
                outcome = Outcome.TRUNCATED
        last = str(state["messages"][-1].content)
        numbers = re.findall(r"-?\d+", last) if outcome is Outcome.OK else []
        right = numbers[-1:] == [str(task.get("ground_truth"))]
        return Episode(float(right), [_plain(message) for message in state["messages"]], outcome)

    def _graph(self, rollout: AsyncOpenRollout, http: Any) -> Any:
        options = {name: value for name, value in self.sampling_params.items() if name not in _NOT_SENT}
        limit = min(int(options.pop("max_tokens", 512)), self.max_response_length)
        model = ChatOpenAI(
            base_url=rollout.base_url, api_key=lambda: self.token or "none", model="any", http_async_client=http,
            max_completion_tokens=limit, extra_body=options, timeout=remaining_s(),
        )  # fmt: skip

        async def reply(state: MessagesState) -> dict[str, Any]:
            first = not any(isinstance(message, AIMessage) for message in state["messages"])
            bound = model.bind_tools(self.tools, tool_choice=self.first_tool if first else None)
            return {"messages": [await bound.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("agent", reply)
        graph.add_node("tools", ToolNode(self.tools))
        graph.add_edge(START, "agent")
        graph.add_conditional_edges("agent", tools_condition, ["tools", END])
        graph.add_edge("tools", "agent")
        return graph.compile()


def _plain(message: BaseMessage) -> dict[str, str]:
    plain = {"role": _ROLES[type(message)], "content": str(message.content)}
    if isinstance(message, AIMessage) and message.tool_calls:
        plain["tool_calls"] = json.dumps(message.tool_calls)
    return plain


if __name__ == "__main__":
    raise SystemExit(__doc__)
