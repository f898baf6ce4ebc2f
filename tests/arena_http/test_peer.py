"""The real `agilerl-arena`, unmodified, against a real server: its `Agent`, its control plane, its command."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwire.client import Client
from gradwire.server.engines.policy.manifest import Network
from tests.arena.bundles import NETWORKS
from tests.arena_http.conftest import peer_command, peer_environment
from tests.engines.policy.support import linear
from tests.serving import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def array(found: Any) -> Any:
    """An array of the record; a list when there are more."""
    made = np.array(found["values"], found["dtype"]).reshape(found["shape"])
    assert str(made.dtype) == found["dtype"]
    return made


def outputs(name: str, **inputs: Any) -> dict[str, Any]:
    """What the network of a deployment gives, in numpy."""
    return linear(Network.model_validate_json(json.dumps(NETWORKS[name])), inputs)


def test_status(record: dict[str, Any]) -> None:
    flags = {name: {key for key, value in found["agent"].items() if value is True}
             for name, found in record["statuses"].items()}  # fmt: skip
    assert flags == {
        "talk": {"llm"}, "cartpole": set(), "memory": {"recurrent"}, "pair": {"multi_agent"}, "iris": {"supervised"}
    }  # fmt: skip
    for name, found in record["statuses"].items():
        assert found["deployment_id"] == name and found["instance_id"] and found["success"]
    assert record["statuses"]["cartpole"]["agent"]["algo"] == "PPO"


def test_actions(record: dict[str, Any]) -> None:
    found = record["actions"]
    rows = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    best = outputs("cartpole", obs=rows)["logits"].argmax(axis=1)
    assert [array(action).tolist() for action, _ in found["one"]] == best.tolist()
    assert array(found["one"][0][0]).shape == () and found["one"][0][1] is None
    assert array(found["batch"][0]).tolist() == best.tolist()
    assert array(found["masked"][0]).tolist() == [1, 0, best[2]]
    assert array(found["masked one"][0]) == 1


def test_actions_of_nested_observations(record: dict[str, Any]) -> None:
    found = record["robot"]
    image, (pose, kind) = array(found["given"]["image"]), map(array, found["given"]["pose"])
    raw = outputs(
        "robot", **{"obs.image": image[None], "obs.pose.0": pose[None], "obs.pose.1": np.array([kind])}
    )["mean"][0]  # fmt: skip
    np.testing.assert_allclose(array(found["one"][0]), np.tanh(raw), atol=1e-5)
    np.testing.assert_allclose(array(found["two"][0]), np.tanh([raw, raw]), atol=1e-5)


def test_a_hidden_state_goes_to_and_fro(record: dict[str, Any]) -> None:
    state: Any = np.full((1, 3), 0.5, np.float32)
    for action, hidden in record["memory"]["steps"]:
        wanted = outputs("memory", obs=np.ones((1, 2), np.float32), **{"state.h": state})
        state = wanted["next_state.h"]
        np.testing.assert_allclose(array(hidden["h"]), state[0], atol=1e-5)
        np.testing.assert_allclose(array(action), np.clip(wanted["action"][0], -1e9, 1e9), atol=1e-5)
    action, hidden = record["memory"]["batch"]
    assert action["shape"] == [2, 1] and hidden["h"]["shape"] == [2, 3]


def test_agents_of_a_team(record: dict[str, Any]) -> None:
    best = outputs("pair", obs=np.array([[1, 1], [0, 0]], np.float32))["logits"].argmax(axis=1).tolist()
    found = {
        case: {agent: array(value).item() for agent, value in action.items()}
        for case, (action, _) in record["pair"].items()
    }
    assert found["masked"] == {"left": 2, "right": 0}
    assert found["dictated"] == {"left": 2, "right": best[1]}
    assert found["by info"] == {"left": best[0], "right": 1}


def test_predictions(record: dict[str, Any]) -> None:
    wanted = outputs("iris", obs=np.eye(4, dtype=np.float32))["logits"]
    one, facts = record["predictions"]["one"]
    np.testing.assert_allclose(array(one), wanted[0], atol=1e-5)
    assert facts["batch_size"] == 1 and facts["success"] and facts["inference_time_ms"] > 0
    batch, facts = record["predictions"]["batch"]
    np.testing.assert_allclose(array(batch), wanted, atol=1e-5)
    assert facts["batch_size"] == 4


def test_texts(record: dict[str, Any], server: ServerProcess) -> None:
    found = record["texts"]
    with Client(server.address) as client:
        ours = {
            text: client.inference.generate(text, max_tokens=6, temperature=0.0, deployment_id="talk").replies[0]
            for text in ("to be", "or not")
        }
        for reply in ours.values():
            client.sessions.delete(reply.session_id, deployment_id="talk")
    texts = {text: reply.completion.text for text, reply in ours.items()}
    assert found["one"]["results"] == [{"prompt": "to be", "completion": texts["to be"]}]
    assert [result["completion"] for result in found["two"]["results"]] == list(texts.values())
    assert found["two"]["batch_size"] == 2 and found["two"]["tokens_per_second"] > 0
    assert "".join(found["stream"]) == texts["to be"] and len(found["stream"]) > 1
    assert len(found["again"]["results"][0]["completion"].encode()) <= len(texts["to be"].encode())
    assert "." not in found["stopped"]["results"][0]["completion"]


def test_sessions(record: dict[str, Any]) -> None:
    found = record["sessions"]
    assert [row["session_id"] for row in found["list"]] == ["peer-2", "peer-1"]
    times = [row[key] for row in reversed(found["list"]) for key in ("created_at", "last_updated")]
    assert times == sorted(times) and times[0].endswith("+00:00")
    messages = found["get"]["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * 2
    assert [message["content"] for message in messages[::2]] == ["to be", "or not"]
    assert found["deleted"] == [True, False, False]
    assert found["gone"] == [404, "InferenceError (404): Session 'peer-1' not found."]


ERRORS = {
    "no such deployment": (404, "no deployment 'nobody'"),
    "action of a chat": (400, "'talk' is a language model; this call is for a policy"),
    "prediction of a policy": (400, "'cartpole' is a policy; this call is for a supervised model"),
    "text of a model": (400, "'iris' is a supervised model; this call is for a language model"),
    "sessions of a policy": (400, "wrong_deployment_kind"),
    "deleting a policy's": (400, "wrong_deployment_kind"),
    "another shape": (400, "obs: has shape [1, 5]; it must be [1, 4]"),
    "another dtype": (400, "obs: is of dtype '<U1'"),
    "not a number": (400, "obs: holds NaN or infinity"),
    "all forbidden": (400, "action_mask: allows nothing"),
    "an unknown parameter": (400, "params.top_n: is not known; did you mean top_p?"),
    "too hot": (400, "params.temperature: must be"),
    "too long": (400, "prompt_too_long"),
    "two prompts, one session": (400, "prompts: are 2; a turn of session_id takes exactly one"),
    "a session id with a slash": (400, "session_id: must be"),
}


def test_errors(record: dict[str, Any]) -> None:
    assert record["errors"].keys() == ERRORS.keys()
    for case, (status, text) in ERRORS.items():
        found = record["errors"][case]
        assert found[0] == status and text in found[1], (case, found)


def test_the_control_plane(record: dict[str, Any], deployed: str) -> None:
    found = record["client"]
    (chat,), (iris,) = found["list"], found["of an experiment"]
    assert chat["url"] == f"http://{deployed}/deployments/talk" and chat["status"] == "running"
    assert (chat["kind"], chat["memory_scope"]) == ("llm", "user")
    assert iris["name"] == "iris" and found["of a project"] == []
    assert array(found["opened"][0]).shape == ()
    assert found["missing"][0] == 404 and "no deployment 'nobody'" in found["missing"][1]
    assert found["deployed"]["name"] == "iris" and found["deployed"]["version"] > iris["version"]
    assert found["not there"][0] == 400 and "experiment_name" in found["not there"][1]
    assert found["scope of a policy"][0] == 400 and "memoryScope" in found["scope of a policy"][1]


def test_the_command(record: dict[str, Any], deployed: str) -> None:
    ran, mine = record["commands"]["ran"], record["commands"]["mine"]
    assert [step["code"] for step in ran] == [0] * 11 + [2] + [0] * 3, [
        step for step in ran if step["code"] not in (0, 2)
    ]
    said = [step["out"] for step in ran]
    assert f"http://{deployed}/deployments/talk" in said[0] and "cartpole" in said[0]
    assert f"Started session {mine}" in said[2] and "Started session" not in said[3]
    assert mine in said[4]
    assert "to be" in said[5] and "or not" in said[5] and "4 messages" in said[5]
    assert "Started session" in said[7] and mine not in said[7]
    assert "6 messages" in said[10] and "that is" in said[10] and "a new one" not in said[10]
    assert "No session 'unknown'" in said[11]
    assert "Deleted" in said[12] and "No session" in said[13]
    assert "iris" in said[14]
    assert len(record["commands"]["left"]) == 1 and mine not in record["commands"]["left"]


def test_the_installed_program(deployed: str, tmp_path: Path) -> None:
    """`arena` itself, once; the rest goes through its main."""
    ran = subprocess.run(
        [peer_command("arena"), "agent", "list", "--name", "memory"],
        env=peer_environment(tmp_path, deployed), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0 and f"http://{deployed}/deployments/memory" in ran.stdout and "talk" not in ran.stdout
