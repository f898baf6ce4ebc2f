"""A google.rpc.Status as Connect writes it: a word for the code, details in base64."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.rpc import code_pb2, error_details_pb2, status_pb2  # error_details_pb2 puts the details into the pool

assert error_details_pb2.DESCRIPTOR


def error_json(status: status_pb2.Status) -> dict[str, Any]:
    """The error object. `debug` beside a detail's bytes is for people who read it in a terminal."""
    name = code_pb2.Code.Name(status.code)
    error: dict[str, Any] = {"code": "canceled" if name == "CANCELLED" else name.lower(), "message": status.message}
    if status.details:
        error["details"] = [_detail(packed) for packed in status.details]
    return error


def _detail(packed: Any) -> dict[str, Any]:
    name = packed.TypeName()
    detail = {"type": name, "value": base64.b64encode(packed.value).decode().rstrip("=")}
    try:
        message = GetMessageClass(Default().FindMessageTypeByName(name)).FromString(packed.value)
    except (KeyError, DecodeError):
        return detail  # of a kind that we do not know
    return {**detail, "debug": json_format.MessageToDict(message)}
