"""The task: one-digit sums and differences of reasoning-gym, as chat prompts, and a reward that checks answers.

Knows: problems, prompts and rewards. Does not know: the server, tokens or training.
"""

from __future__ import annotations

import random
import re
import warnings
from dataclasses import dataclass
from typing import Any

with warnings.catch_warnings():
    # cellpylib, which reasoning-gym imports, compares strings with "is". Python says so when it compiles it: at the
    # first demo on a machine, where it reads like a fault of the demo's.
    warnings.filterwarnings("ignore", category=SyntaxWarning, module=r".*[/\\.]cellpylib[/\\.]")
    import reasoning_gym

SYSTEM = "Answer with a number only."
NUMBER = re.compile(r"-?\d+")
FORMAT_REWARD = 0.1
# The held-out problems are the same for every seed, so that runs with different seeds can be compared.
SPLIT_SEED = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """A question, and what reasoning-gym needs to check an answer."""

    question: str
    entry: dict[str, Any]

    @property
    def prompt(self) -> list[dict[str, str]]:
        """The conversation that the model continues."""
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": self.question}]


@dataclass(frozen=True, slots=True)
class Score:
    """What a completion earned."""

    reward: float
    """0 to 1: most of it for the right answer, the rest for saying nothing but a number."""
    correct: bool


class Task:
    """Problems to train on, and problems that are only ever used to measure."""

    def __init__(self, *, held_out: int, seed: int) -> None:
        self._data = reasoning_gym.create_dataset(
            "chain_sum", min_terms=2, max_terms=2, min_digits=1, max_digits=1, seed=SPLIT_SEED, size=2000
        )
        # The dataset draws with repetition: a problem must not stand on both sides of the split.
        by_question = {entry["question"]: entry for entry in self._data}
        problems = [Problem(question, by_question[question]) for question in sorted(by_question)]
        random.Random(SPLIT_SEED).shuffle(problems)
        self.held_out, self.training = problems[:held_out], problems[held_out:]
        self._random = random.Random(seed)
        self._next: list[Problem] = []

    def draw(self, count: int) -> list[Problem]:
        """The next training problems: each comes up once before any comes again."""
        drawn: list[Problem] = []
        while len(drawn) < count:
            if not self._next:
                self._next = self._random.sample(self.training, len(self.training))
            drawn.append(self._next.pop())
        return drawn

    def score(self, problem: Problem, text: str) -> Score:
        """The last number of the text is its answer.

        The small part for the format is graded by the share of characters that are the answer's own. It tells
        good from bad before any answer is right, so that even a model that cannot add has something to learn.
        """
        text = text.strip()
        numbers = NUMBER.findall(text)
        if not numbers:
            return Score(0.0, False)
        correct = self._data.score_answer(numbers[-1], problem.entry) == 1.0
        reward = (1 - FORMAT_REWARD) * correct + FORMAT_REWARD * len(numbers[-1]) / len(text)
        return Score(reward, correct)
