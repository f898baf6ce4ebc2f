"""Bundles that the tests' server, and the examples of docs/agents.md, deploy: linear networks of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.engines.policy.support import box, discrete, network, write

_CAMERA = {
    "type": "Dict",
    "spaces": {
        "image": box(4, 4, 3, low=0, high=255, dtype="uint8"),
        "pose": {"type": "Tuple", "spaces": [box(2), discrete(3)]},
    },
}
NETWORKS: dict[str, dict[str, Any]] = {
    "cartpole": network(box(4), "categorical", discrete(2)),
    "robot": network(_CAMERA, "squashed_gaussian", box(2, low=-1, high=1)),
    "memory": network(box(2), "deterministic", box(1), states={"h": {"shape": [3], "initial": 0.5}}),
    "pair": network(box(2), "categorical", discrete(3)),
    "duo": network(box(2), "deterministic", box(1), states={"h": {"shape": [3], "initial": 0.5}}),
    "iris": network(box(4), None, None, outputs=["logits"]),
}


def write_bundles(root: Path) -> None:
    """All of them, each in the folder of its name."""
    for name, spec in NETWORKS.items():
        agents = {"left": "policy", "right": "policy"} if name in ("pair", "duo") else {}
        write(root / name, {"policy": spec}, algo="PPO", agents=agents)
