"""An agent that thinks, acts and observes in plain text (ReAct, arXiv 2210.03629), as an engine.

It is no script: a program of yours plays it, on a server that was started with `gradwire serve --http 127.0.0.1:8080`:

    from gradwire.client.agentic import load_engine, run_engine

    engine = load_engine("react_agent.py", ["127.0.0.1:8080"], agent_name="react", tokenizer=...)
    batch = run_engine(engine, [{"question": "What is 17 * 3?", "ground_truth": "51"}])

It talks to the model with openai's own client. The server records what was sampled; nothing here handles tokens.
"""

from __future__ import annotations

import ast
import operator
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import openai

from gradwire.client import AsyncOpenRollout
from gradwire.client.agentic import Episode, Outcome, RolloutEngine, remaining_s, run_tool

SYSTEM = """Answer the user's question. In each reply, think, then either use a tool or answer.
To use a tool, end the reply with a line such as
Action: calculate[12 * (3 + 4)]
and its result comes back as an observation. To answer, end the reply with a line such as
Answer: 84"""

_ACTION = re.compile(r"^Action: *(\w+)\[(.*)\]\s*$", re.MULTILINE)
_ANSWER = re.compile(r"^Answer: *(.+?)\s*$", re.MULTILINE)
_FORMAT = "There was neither an action nor an answer. End with a line Action: tool[input] or Answer: ..."
# What the server records in any case, and what only the documented profile knows.
_NOT_SENT = {"logprobs", "detokenize", "model_name"}

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def calculate(text: str) -> str:
    """The value of a sum with numbers, + - * / and brackets. ValueError for anything else."""

    def value(node: ast.AST) -> Any:
        match node:
            case ast.Expression(body=body):
                return value(body)
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return number
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
        raise ValueError(f"{text!r} is no sum")

    try:
        return f"{value(ast.parse(text.strip(), mode='eval')):g}"
    except (SyntaxError, RecursionError, ArithmeticError) as error:
        raise ValueError(f"{text!r}: {error}") from error


class ReactEngine(RolloutEngine):
    """ReAct with `tools`; the reward is 1 for the right answer."""

    tools: ClassVar[Mapping[str, Callable[[str], Any]]] = {"calculate": calculate}
    tool_timeout_s: ClassVar[float] = 10.0

    async def play(self, rollout: AsyncOpenRollout, task: dict[str, Any]) -> Episode:
        """One question, at most `max_steps` replies."""
        messages: list[Any] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": str(task["question"])},
        ]
        env_s = 0.0
        async with openai.AsyncOpenAI(base_url=rollout.base_url, api_key=self.token or "none") as model:
            for _ in range(self.max_steps):
                reply = await self._reply(model, messages)
                if reply is None:
                    break
                messages.append({"role": "assistant", "content": reply})
                if answer := _ANSWER.search(reply):
                    right = answer[1] == str(task.get("ground_truth"))
                    return Episode(float(right), messages, env_s=env_s)
                began = time.monotonic()
                messages.append({"role": "user", "content": f"Observation: {await self._observe(reply)}"})
                env_s += time.monotonic() - began
        return Episode(0.0, messages, Outcome.TRUNCATED, env_s=env_s)

    async def _reply(self, model: openai.AsyncOpenAI, messages: list[Any]) -> str | None:
        """The model's next message; None when it has no room for one."""
        options = {name: value for name, value in self.sampling_params.items() if name not in _NOT_SENT}
        limit = min(int(options.pop("max_tokens", 512)), self.max_response_length)
        try:
            answer = await model.chat.completions.create(
                model="any", messages=messages, max_tokens=limit, extra_body=options, timeout=remaining_s()
            )
        except openai.BadRequestError as error:
            if "context length" in str(error):
                return None
            raise
        too_long = answer.usage is not None and answer.usage.prompt_tokens > self.max_prompt_length
        return None if too_long else answer.choices[0].message.content or ""

    async def _observe(self, reply: str) -> str:
        """What the environment says to a reply. A tool's failure is something to learn from."""
        action = _ACTION.search(reply)
        if action is None:
            return _FORMAT
        name, argument = action.groups()
        if name not in self.tools:
            return f"there is no tool {name}; there is {', '.join(self.tools)}"
        try:
            return str(await run_tool(self.tools[name], argument, timeout_s=self.tool_timeout_s))
        except Exception as error:
            if remaining_s() == 0:
                raise  # the task's time is over, not the tool's
            return f"{name} failed: {error}"


if __name__ == "__main__":
    raise SystemExit(__doc__)
