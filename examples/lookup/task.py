"""The task: say what something costs. The price list is the tool's; the model has to ask for it.

Two turns. First the model names what it wants to look up; then it is told that thing's price, and answers with it.
Prices are new for every task, so nobody can know one by heart, and what is measured is never trained on.

Knows: items, prices, what a reply earns. Does not know: models, servers or tokens.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

NUMBER = re.compile(r"\d+")
SYSTEM = "First answer with the name only. When you are told the price, answer with the number only."
HELD_OUT_SEED = 1_000_003

WORDS = (
    "apple", "banana", "bread", "butter", "cheese", "coffee", "egg", "fish", "flour", "honey", "lemon", "milk", "onion",
    "orange", "pear", "pepper", "plum", "potato", "rice", "salt", "sugar", "tea", "tomato", "water",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Market:
    """What can be asked for. A model of one token a byte has items of one letter and prices of one digit."""

    items: tuple[str, ...]
    prices: range
    max_tokens: int
    """Of a reply."""
    system: str = ""
    num_held_out: int = 4

    @classmethod
    def of_words(cls) -> Market:
        """For models that can read."""
        return cls(WORDS, range(10, 100), max_tokens=8, system=SYSTEM, num_held_out=8)

    @classmethod
    def of_letters(cls) -> Market:
        """For the tiny model, which begins with random weights."""
        return cls(tuple("abcdefghijkl"), range(10), max_tokens=1)

    def held_out(self, number: int) -> list[Task]:
        """Tasks to measure with: always the same, on items that are never trained on."""
        dice = random.Random(HELD_OUT_SEED)
        items = self.items[-self.num_held_out :]
        return [self._task(dice, items[place % len(items)]) for place in range(number)]

    def draw(self, dice: random.Random, number: int) -> list[Task]:
        """Tasks to train on."""
        return [self._task(dice, item) for item in dice.sample(self.items[: -self.num_held_out], number)]

    def _task(self, dice: random.Random, item: str) -> Task:
        return Task(item, dict(zip(self.items, (dice.choice(self.prices) for _ in self.items), strict=True)))


@dataclass(frozen=True, slots=True)
class Task:
    """A question, and the price list of its day."""

    item: str
    prices: dict[str, int]

    @property
    def question(self) -> str:
        """What the model is asked."""
        return f"What is the price of {self.item}?"

    def looked_up(self, reply: str) -> str | None:
        """The first item that a reply names; None when it names none."""
        found = [(place, item) for item in self.prices if (place := reply.lower().find(item)) >= 0]
        return min(found)[1] if found else None

    def told(self, item: str) -> str:
        """What the tool says."""
        return f"The price is {self.prices[item]}."

    def lookup_reward(self, reply: str) -> float:
        """0 to 0.5: for naming an item, for naming the right one, and for saying little else."""
        item = self.looked_up(reply)
        if item is None:
            return 0.0
        right = item == self.item
        return 0.2 + right * (0.2 + 0.1 * len(item) / len(reply.strip()))

    def answer_reward(self, reply: str) -> float:
        """0 to 0.5: for a number, for the right one, and for saying little else."""
        numbers = NUMBER.findall(reply)
        if not numbers:
            return 0.0
        return 0.1 + 0.3 * self.correct(reply) + 0.1 * len(numbers[-1]) / len(reply.strip())

    def correct(self, reply: str) -> bool:
        """The last number is the price of what was asked for."""
        numbers = NUMBER.findall(reply)
        return bool(numbers) and int(numbers[-1]) == self.prices[self.item]
