"""The agent: plays one task with OpenAI's client, and does not know that anybody records or trains it."""

from __future__ import annotations

from dataclasses import dataclass, field

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from lookup.task import Market, Task


@dataclass(slots=True)
class Played:
    """How it went."""

    replies: list[str] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    """One for each reply."""
    correct: bool = False

    @property
    def reward(self) -> float:
        """Of the whole, 0 to 1."""
        return sum(self.rewards)


async def play(openai: AsyncOpenAI, market: Market, task: Task, *, seed: int) -> Played:
    """One task: a lookup, and if it found anything an answer."""
    played = Played()
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": task.question}]
    if market.system:
        messages.insert(0, {"role": "system", "content": market.system})

    async def ask() -> str:
        completion = await openai.chat.completions.create(
            model="policy",
            messages=messages,
            max_tokens=market.max_tokens,
            temperature=1.0,
            top_p=1.0,
            seed=seed + len(played.replies),
        )
        reply = completion.choices[0].message.content or ""
        played.replies.append(reply)
        messages.append({"role": "assistant", "content": reply})
        return reply

    wanted = await ask()
    played.rewards.append(task.lookup_reward(wanted))
    item = task.looked_up(wanted)
    if item is None:
        return played
    messages.append({"role": "user", "content": task.told(item)})
    answer = await ask()
    played.rewards.append(task.answer_reward(answer))
    played.correct = task.correct(answer)
    return played
