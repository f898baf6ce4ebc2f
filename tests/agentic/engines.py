"""What the tests of engines share: a tokenizer, an engine that plays by a given function, trajectories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from gradwire.client.agentic import BaseEngineWrapper, Trajectory

TOKENIZER = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]")))


def trajectory(idx: int = 0, **changes: Any) -> Trajectory:
    values: dict[str, Any] = {
        "prompt_tokens": torch.tensor([7, 8]),
        "response_tokens": torch.tensor([10, 11]),
        "response_masks": torch.tensor([1, 0]),
    }
    return Trajectory(**{**values, **changes}, idx=idx)


class Engine(BaseEngineWrapper):
    """Gives what `play(tasks)` gives."""

    def __init__(self, play: Callable[[list[dict[str, Any]]], Any], **arguments: Any) -> None:
        super().__init__("tested", TOKENIZER, **arguments)
        self.play = play

    def initialize(self) -> None:
        pass

    def generate_agent_trajectories_async(self, tasks: list[dict[str, Any]]) -> Any:
        return self.play(tasks)
