"""Actions and predictions. All arrays have a batch dimension, in both directions."""

from __future__ import annotations

import json
from typing import Any

from gradwire.server.domain.caller import current_caller
from gradwire.server.domain.inference import Inference
from gradwire.server.engines.acting import num_bytes
from gradwire.server.http.arena.answers import Answer
from gradwire.server.http.arena.asked import Asked
from gradwire.server.http.arena.requests import action_request, predict_inputs
from gradwire.server.http.arena.values import write_value
from gradwire.server.http.json_body import off_loop


async def act(inference: Inference, asked: Asked, answer: Answer) -> None:
    """`POST /get_action`."""
    request = await asked.read(action_request)
    found = await inference.act(current_caller(), asked.deployment_id, request)
    values = {"action": found.action}
    if found.hidden_state is not None:
        values["hidden_state"] = found.hidden_state
    await answer.json_bytes(await off_loop(num_bytes(values), lambda: _json(write_value(values))))


async def predict(inference: Inference, asked: Asked, answer: Answer) -> None:
    """`POST /predict`."""
    inputs = await asked.read(predict_inputs)
    found = await inference.predict(asked.deployment_id, inputs, batched=True)

    def written() -> bytes:
        facts = {"batch_size": found.batch_size, "inference_time_ms": 1000 * found.seconds, "success": True}
        return _json({"results": write_value(found.outputs), **facts})

    await answer.json_bytes(await off_loop(num_bytes(found.outputs), written))


def _json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
