"""Innermost: the rules that the protos declare (protovalidate) hold before a handler sees a message."""

from __future__ import annotations

import asyncio
from typing import Any

import protovalidate

from gradwire.server.errors import FieldViolation, InvalidArgument
from gradwire.server.losses.config import one_of
from gradwire.server.rpc.interceptors.step import Call, Step

_BIG = 1 << 20  # bytes; validating more than this would hold up the event loop


class Validation(Step):
    """Raises InvalidArgument with the path of each bad field."""

    def __init__(self) -> None:
        self._validator = protovalidate.Validator()

    async def check(self, call: Call, message: Any) -> None:
        if not call.method.startswith("/gradwire."):
            return  # health and reflection have no rules
        if message.ByteSize() > _BIG:
            violations = await asyncio.to_thread(self._violations, message)
        else:
            violations = self._violations(message)
        if violations:
            raise InvalidArgument(violations)

    def _violations(self, message: Any) -> list[FieldViolation]:
        return [FieldViolation(_path(v.proto.field), _text(v)) for v in self._validator.collect_violations(message)]


def _text(violation: Any) -> str:
    """What is wrong; for a word that is none of the known ones, with the nearest."""
    if violation.proto.rule_id != "string.in":
        return str(violation.proto.message)
    return one_of(str(violation.field_value), tuple(violation.rule_value))


def _path(path: Any) -> str:
    """`prompts[0].text`, as a caller would write it."""
    text = ""
    for element in path.elements:
        text += ("." if text else "") + element.field_name
        subscript = element.subscript
        if subscript is not None:
            value = getattr(subscript, "value", subscript)
            text += f"[{value!r}]" if isinstance(value, str) else f"[{value}]"
    return text
