"""Bodies and paths: what they mean, and which field is named when they mean nothing."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from gradwire.server.errors import Aborted, GradwireError, InvalidArgument
from gradwire.server.http.arena.answers import Answer
from gradwire.server.http.arena.npy import write_array
from gradwire.server.http.arena.paths import Route, base_url, target_of
from gradwire.server.http.arena.requests import action_request, predict_inputs, text_call
from gradwire.server.http.arena.values import first_rows, read_value, write_value
from gradwire.server.http.json_body import json_object

ROW = write_array(np.zeros((1, 4), np.float32))
ROWS = write_array(np.zeros((3, 4), np.float32))


def test_nested_values_come_back() -> None:
    value: Any = {"camera": np.ones((2, 3), np.uint8), "rest": (np.zeros((2, 1)), None, {"deep": np.arange(2)})}
    found: Any = read_value(json.loads(json.dumps(write_value(value))), "obs")
    assert list(found) == ["camera", "rest"] and isinstance(found["rest"], tuple) and found["rest"][1] is None
    np.testing.assert_array_equal(found["rest"][2]["deep"], [0, 1])
    assert found["camera"].dtype == np.uint8 and first_rows(found, "obs") == 2


def test_an_action_request() -> None:
    call: Any = action_request(
        {"obs": ROWS, "batch_size": 3, "hidden_state": None, "action_mask": write_array(np.ones((3, 2)))}
    )
    assert np.shape(call.observation) == (3, 4) and np.shape(call.action_mask) == (3, 2)
    assert call.hidden_state is None and call.env_defined_actions is None
    team = action_request({"obs": {"a": ROW, "b": ROW}, "env_defined_actions": {"a": None, "b": ROW}})
    assert isinstance(team.env_defined_actions, dict) and team.env_defined_actions["a"] is None


BAD_ACTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "obs: is required"),
    "null": ({"obs": None}, "obs: is required"),
    "a number": ({"obs": 1}, "obs: is a JSON int"),
    "numbers": ({"obs": [1, 2]}, "obs[0]: is a JSON int"),
    "no arrays": ({"obs": {}}, "obs: holds no array"),
    "a scalar": ({"obs": write_array(np.array(1.0))}, "obs: has no dimension"),
    "another batch": ({"obs": ROWS, "batch_size": 2}, "batch_size: is 2, but the first array of obs has 3 rows"),
    "a truth for a batch": ({"obs": ROW, "batch_size": True}, "batch_size: is True"),
    "a misspelt field": ({"obs": ROW, "action_masks": ROW}, "action_masks: is not known; did you mean action_mask?"),
    "inside": ({"obs": {"a": {"b": "x"}}}, "obs.a.b: is no base64"),
    "a mask that is none": ({"obs": ROW, "action_mask": {"a": 3}}, "action_mask.a: is a JSON int"),
    "a well": ({"obs": json.loads("[" * 40 + "]" * 40)}, "nested deeper than 16"),
    "an army": ({"obs": {str(index): ROW for index in range(5000)}}, "at most 4096 arrays"),
}


@pytest.mark.parametrize(("body", "said"), BAD_ACTIONS.values(), ids=BAD_ACTIONS)
def test_bad_actions(body: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        action_request(body)
    assert said in raised.value.message


def test_a_prediction_takes_inputs_alone() -> None:
    inputs: Any = predict_inputs({"inputs": ROWS})
    assert inputs.shape == (3, 4)
    with pytest.raises(InvalidArgument, match="obs: is not known"):
        predict_inputs({"obs": ROWS})


def test_the_documents_parameters() -> None:
    call = text_call({"prompts": ["a", "b"]}, streamed=False)
    assert call.prompts == ("a", "b") and call.session_id is None
    assert call.params == {"temperature": 0.7, "top_p": 0.9, "stop": [], "max_tokens": 100}
    more = {"max_new_tokens": 5, "do_sample": False, "seed": 7, "stop": "x", "top_k": 3, "min_p": None}
    call = text_call({"prompt": "a", "params": more, "session_id": " s "}, streamed=True)
    assert call.session_id == "s"
    assert call.params == {"temperature": 0.0, "top_p": 0.9, "seed": 7, "top_k": 3, "stop": ["x"], "max_tokens": 5}


BAD_TEXTS: dict[str, tuple[dict[str, Any], str]] = {
    "no prompts": ({}, "prompts: is required"),
    "an empty list": ({"prompts": []}, "prompts: must be a list"),
    "a blank prompt": ({"prompts": ["a", " \n"]}, "prompts[1]: must be a string that is not blank"),
    "a number": ({"prompts": [3]}, "prompts[0]: must be a string"),
    "half a character": ({"prompts": ["\ud800"]}, "prompts[0]: holds half a character: \\ud800"),
    "an unknown parameter": ({"prompts": ["a"], "params": {"max_tokens": 1}}, "did you mean max_new_tokens?"),
    "text for a number": ({"prompts": ["a"], "params": {"temperature": "hot"}}, "params.temperature: must be a number"),
    "a fraction": ({"prompts": ["a"], "params": {"max_new_tokens": 1.5}}, "params.max_new_tokens: must be a whole"),
    "a word for a flag": (
        {"prompts": ["a"], "params": {"do_sample": "yes"}},
        "params.do_sample: must be true or false",
    ),
    "a number to stop at": ({"prompts": ["a"], "params": {"stop": [1]}}, "params.stop: must be a string or a list"),
    "a list of parameters": ({"prompts": ["a"], "params": []}, "params: is a JSON list"),
    "a blank session": ({"prompts": ["a"], "session_id": " "}, "session_id: must be a string that is not blank"),
}


@pytest.mark.parametrize(("body", "said"), BAD_TEXTS.values(), ids=BAD_TEXTS)
def test_bad_texts(body: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        text_call(body, streamed=False)
    assert said in raised.value.message


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"a": NaN}', b'{"a": 1e999}', b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_no_body(data: bytes) -> None:
    with pytest.raises(InvalidArgument, match="the body is"):
        json_object(data)


def test_paths() -> None:
    named = target_of("/deployments/my agent/get_action")
    assert named is not None and named.deployment_id == "my agent" and named.routes == {"POST": Route.ACTION}
    assert (alone := target_of("/status")) is not None and alone.deployment_id == ""
    odd = target_of("/deployments/a/sessions/../../etc/passwd\n")
    assert odd is not None and odd.session_id == "../../etc/passwd\n"
    assert odd.routes == {"GET": Route.SESSION, "DELETE": Route.FORGET}
    for path in ("/", "/get_actions", "/status/x", "/deployments/a", "/deployments//status", "/v1/models", "/health"):
        assert target_of(path) is None, path
    assert base_url("http", "localhost:1", "a/b c") == "http://localhost:1/deployments/a%2Fb%20c"


class Sent:
    """What an answer sent."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.answer = Answer(self.send)

    async def send(self, message: Any) -> None:
        self.messages.append(message)

    @property
    def parts(self) -> list[bytes]:
        return [message["body"] for message in self.messages[1:]]


ERROR: GradwireError = Aborted("SESSION_LOST", "it was deleted")


async def test_an_error_in_a_stream_is_a_part_of_its_own() -> None:
    sent = Sent()
    await sent.answer.begin_text()
    await sent.answer.text("so ")
    await sent.answer.text("")  # nothing: it would end the stream
    await sent.answer.fail(ERROR)
    await sent.answer.fail(ERROR)  # once
    assert sent.parts == [b"so ", b"\n[ERROR: session_lost: it was deleted]", b""]
    assert [message.get("more_body", False) for message in sent.messages[1:]] == [True, True, False]


async def test_a_model_that_says_error_is_no_error() -> None:
    sent = Sent()
    await sent.answer.begin_text()
    await sent.answer.text("\n[ERROR: not really]")
    await sent.answer.end()
    assert sent.parts == [b"\n", b"[ERROR: not really]", b""]


async def test_an_error_instead_of_an_answer() -> None:
    sent = Sent()
    await sent.answer.fail(ERROR)
    assert sent.messages[0]["status"] == 409
    assert json.loads(sent.parts[0]) == {"detail": "it was deleted", "code": "session_lost"}
