"""A client of deployed policies, in a process of its own: ours over gRPC, or the real `agilerl-arena` over HTTP.

`python -m benchmarks.policy_caller grpc|http ADDRESS`. The second runs in the environment that has agilerl-arena.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from benchmarks.child import obey

ROWS = 64
VECTOR = np.linspace(-1, 1, 8, dtype=np.float32)
IMAGES = np.random.default_rng(0).integers(0, 256, (ROWS, 84, 84, 4), np.uint8)


def agent_of(protocol: str, address: str, name: str) -> Any:
    """The two have the same methods."""
    if protocol == "http":
        from agilerl.arena.inference import Agent as ArenaAgent

        return ArenaAgent(f"http://{address}/deployments/{name}")
    from gradwire.client.arena import Agent

    return Agent(f"grpc://{address}/{name}")


def main(protocol: str, address: str) -> None:
    """Answers `{"name": ..., "calls": ...}` with the seconds of each call, and the last call's actions."""
    agents = {name: agent_of(protocol, address, name) for name in ("vector", "image")}

    def measure(command: dict[str, Any]) -> Any:
        name = command["name"]
        agent, observation, batched = agents[name], VECTOR if name == "vector" else IMAGES, name == "image"
        taken = []
        for _ in range(command["calls"]):
            began = time.perf_counter()
            action, _ = agent.get_action(observation, batched=batched)
            taken.append(time.perf_counter() - began)
        return {"seconds": taken, "action": np.asarray(action).tolist()}

    obey(measure)


if __name__ == "__main__":
    main(*sys.argv[1:])
