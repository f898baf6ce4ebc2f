"""`run` with a policy or a supervised model: observations from stdin, actions or predictions to stdout.

A line is an observation as JSON, or the path of a .npy or .json file; {"observation": ..., "info": ...} gives masks
with it. An empty line begins a new episode: a recurrent policy's hidden state is as at first again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gradwire.client.arena.cli import shown
from gradwire.client.arena.cli.opened import Opened


def act(args: argparse.Namespace, opened: Opened) -> int:
    """Answers each line with one line of JSON."""
    agent = opened.status.agent
    assert agent is not None, "whoever calls has looked"
    space = agent.observation_space
    hidden: Any = None
    for line in map(str.strip, sys.stdin):
        if not line:
            hidden = None
            continue
        value, info = _read(line)
        observation = shaped(value, space)
        if agent.supervised:
            outputs, result = opened.agent.predict(observation, batched=args.batched)
            facts = {"batch_size": result.batch_size, "inference_time_ms": result.inference_time_ms}
            shown.as_json({"outputs": plain(outputs), **facts} if args.json else plain(outputs))
            continue
        action, hidden = opened.agent.get_action(
            observation,
            batched=args.batched,
            hidden_state=hidden,
            info=info,
            deterministic=args.deterministic,
            seed=args.seed,
        )
        shown.as_json({"action": plain(action)} if args.json else plain(action))
    return 0


def _read(line: str) -> tuple[Any, Any]:
    if line.endswith(".npy"):
        with Path(line).open("rb") as file:
            return np.load(file, allow_pickle=False), None
    try:
        value = json.loads(Path(line).read_text() if line.endswith(".json") else line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{line[:80]!r} is neither JSON nor the path of a .npy or .json file: {error}") from error
    if isinstance(value, dict) and value.keys() == {"observation", "info"}:
        return value["observation"], value["info"]
    return value, None


def shaped(value: Any, space: Mapping[str, Any] | None) -> Any:
    """JSON as the space has it: dicts, tuples, arrays. What does not fit is left for the server to name."""
    children = space.get("spaces") if space else None
    if isinstance(value, dict):
        known = children if isinstance(children, Mapping) else {}
        return {key: shaped(item, known.get(key)) for key, item in value.items()}
    if isinstance(value, list) and isinstance(children, list) and len(children) == len(value):
        return tuple(shaped(item, child) for item, child in zip(value, children, strict=True))
    return np.asarray(value)


def plain(value: Any) -> Any:
    """Arrays as lists and numbers, for JSON."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple) else np.asarray(value).tolist()
