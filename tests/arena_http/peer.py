"""Runs in the environment of the real `agilerl-arena`: calls each method of its `Agent`, and each command of `arena`.

`python peer.py SERVER` prints one JSON object: what each case gave. Nothing of gradwire is imported here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from agilerl.arena import ArenaClient
from agilerl.arena.cli import main as arena
from agilerl.arena.exceptions import ArenaError
from agilerl.arena.inference import Agent, LLMParams
from click.testing import CliRunner

SERVER = sys.argv[1]
SHORT = {"max_new_tokens": 6, "temperature": 0.0}


def agent(name: str, **options: Any) -> Agent:
    return Agent(f"http://{SERVER}/deployments/{name}", **options)


def plain(value: Any) -> Any:
    """A value that JSON has."""
    if isinstance(value, np.ndarray):
        return {"dtype": str(value.dtype), "shape": list(value.shape), "values": value.ravel().tolist()}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value.model_dump() if hasattr(value, "model_dump") else value


def refused(action: Callable[[], Any]) -> Any:
    """The error's status code and text."""
    try:
        return ["no error", plain(action())]
    except ArenaError as error:
        return [getattr(error, "status_code", type(error).__name__), str(error)]


def statuses() -> Any:
    return {name: agent(name).status(refresh=True) for name in ("talk", "cartpole", "memory", "pair", "iris")}


def actions() -> Any:
    cart = agent("cartpole")
    rows = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    masks = np.array([[0, 1], [1, 0], [1, 1]])
    return {
        "one": [cart.get_action(row) for row in rows],
        "batch": cart.get_action(rows, batched=True),
        "masked": cart.get_action(rows, batched=True, info={"action_mask": masks}),
        "masked one": cart.get_action(rows[0], info={"action_mask": masks[0]}),
    }


def robot() -> Any:
    """A dict of an image and a tuple."""
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (4, 4, 3), np.uint8)
    one: Any = {"image": image, "pose": (rng.normal(size=2).astype(np.float32), np.array(1))}
    two = {"image": np.stack([image] * 2), "pose": (np.stack([one["pose"][0]] * 2), np.array([1, 1]))}
    return {
        "given": plain(one),
        "one": agent("robot").get_action(one),
        "two": agent("robot").get_action(two, batched=True),
    }


def memory() -> Any:
    """The hidden state goes to and fro."""
    it, hidden, steps = agent("memory"), None, []
    for _ in range(3):
        action, hidden = it.get_action(np.ones(2, np.float32), hidden_state=hidden)
        steps.append([action, hidden])
    batch = it.get_action(np.ones((2, 2), np.float32), batched=True)
    return {"steps": steps, "batch": batch}


def pair() -> Any:
    observation = {"left": np.ones(2, np.float32), "right": np.zeros(2, np.float32)}
    mask = {"left": np.array([0, 0, 1]), "right": np.array([1, 0, 0])}
    dictated = {"left": np.array(np.nan), "right": np.array(1)}
    it = agent("pair")
    return {
        "masked": it.get_action(observation, info={"action_mask": mask}),
        "dictated": it.get_action(observation, env_defined_actions={"left": np.array(2), "right": None}),
        "by info": it.get_action(observation, info={"env_defined_actions": dictated}),
    }


def predictions() -> Any:
    iris, rows = agent("iris"), np.eye(4, dtype=np.float32)
    return {"one": iris.predict(rows[0]), "batch": iris.predict(rows, batched=True)}


def texts() -> Any:
    chat = agent("talk", generate_params=LLMParams(**SHORT))
    return {
        "one": chat.generate("to be"),
        "two": chat.generate(["to be", "or not"]),
        "again": chat.generate("to be", params=LLMParams(max_new_tokens=3)),
        "stopped": chat.generate("to be", params={"stop": ["."], "seed": 5, "top_k": 3, "min_p": 0.1}),
        "stream": list(chat.generate_stream("to be")),
    }


def sessions() -> Any:
    chat = agent("talk", generate_params=LLMParams(**SHORT))
    before = {row.session_id for row in chat.list_sessions()}
    for text in ("to be", "or not"):
        list(chat.generate_stream(text, session_id="peer-1"))
    chat.generate("that is", session_id="peer-2")
    found: dict[str, Any] = {"list": [row for row in chat.list_sessions() if row.session_id not in before]}
    found["get"] = chat.get_session("peer-1")
    found["deleted"] = [chat.delete_session("peer-1"), chat.delete_session("peer-1"), chat.delete_session("a/b c?d=1")]
    found["gone"] = refused(lambda: chat.get_session("peer-1"))
    chat.delete_session("peer-2")
    return found


def errors() -> Any:
    blind = {name: agent(name) for name in ("talk", "cartpole", "iris")}
    for it in blind.values():  # as of a deployment that does not say its shape
        it.metadata = it.metadata.model_copy(update={"agent": None})
    zeros, cart, chat = np.zeros(4, np.float32), agent("cartpole"), agent("talk")
    return {
        "no such deployment": refused(lambda: agent("nobody")),
        "action of a chat": refused(lambda: blind["talk"].get_action(zeros)),
        "prediction of a policy": refused(lambda: blind["cartpole"].predict(zeros)),
        "text of a model": refused(lambda: blind["iris"].generate("a")),
        "sessions of a policy": refused(lambda: blind["cartpole"].list_sessions()),
        "deleting a policy's": refused(lambda: blind["cartpole"].delete_session("a")),
        "another shape": refused(lambda: cart.get_action(np.zeros(5, np.float32))),
        "another dtype": refused(lambda: cart.get_action(np.array(list("abcd")))),
        "not a number": refused(lambda: cart.get_action(np.full(4, np.nan, np.float32))),
        "all forbidden": refused(lambda: cart.get_action(zeros, info={"action_mask": np.zeros(2)})),
        "an unknown parameter": refused(lambda: chat.generate("a", params={"top_n": 1})),
        "too hot": refused(lambda: chat.generate("a", params={"temperature": 1000})),
        "too long": refused(lambda: chat.generate("a" * 100_000)),
        "two prompts, one session": refused(lambda: chat.generate(["a", "b"], session_id="s")),
        "a session id with a slash": refused(lambda: chat.generate("a", session_id="../x")),
    }


def client() -> Any:
    """The control plane's, which finds deployments by name."""
    with ArenaClient(api_key="any") as found:
        with found.open_inference_agent("cartpole") as it:
            opened = it.get_action(np.zeros(4, np.float32))
        return {
            "list": found.list_inference_deployments(name="talk"),
            "of an experiment": found.list_inference_deployments(experiment_name="iris"),
            "of a project": found.list_inference_deployments(project_name="p"),
            "opened": opened,
            "missing": refused(lambda: found.open_inference_agent("nobody")),
            "deployed": found.deploy_agent("iris"),
            "not there": refused(lambda: found.deploy_agent("none")),
            "scope of a policy": refused(lambda: found.deploy_agent("iris", memory_scope="user")),
        }


def commands() -> Any:
    """In this order, by the command's own main; its state is in HOME."""
    ran: list[dict[str, Any]] = []

    def run(*words: str, said: str | None = None) -> str:
        result = CliRunner().invoke(arena, ["agent", *words], input=said)
        ran.append({"words": words, "code": result.exit_code, "out": result.output})
        return str(result.output)

    run("list")
    run("run", "talk")
    run("generate", "--prompt", "to be")
    run("generate", "--prompt", "or not")
    run("sessions", "list")
    (mine,) = {row.session_id for row in agent("talk").list_sessions()}
    run("sessions", "get", mine)
    run("sessions", "clear")
    run("generate", "--prompt", "a new one")
    run("sessions", "resume", "--session-id", mine)
    run("generate", "--prompt", "that is")
    run("sessions", "get", mine)
    run("sessions", "resume", "--session-id", "unknown")
    run("sessions", "delete", mine, said="y\n")
    run("sessions", "delete", mine, "--yes")
    run("deploy", "iris")
    left = [row.session_id for row in agent("talk").list_sessions()]
    for session_id in left:
        agent("talk").delete_session(session_id)
    return {"ran": ran, "mine": mine, "left": left}


CASES: Iterable[Callable[[], Any]] = (
    statuses, actions, robot, memory, pair, predictions, sessions, texts, errors, client
)  # fmt: skip

if __name__ == "__main__":
    record = {case.__name__: plain(case()) for case in CASES}
    for session in agent("talk").list_sessions():
        agent("talk").delete_session(session.session_id)
    print(json.dumps({**record, "commands": plain(commands())}))
