"""Messages <-> bytes: protobuf's binary form, and its canonical JSON form.

An unknown field in JSON is an error: a misspelt limit must not be a missing limit.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Protocol

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from gradwire.server.errors import InvalidArgument
from gradwire.server.rpc.interceptors.errors import not_a_message

_LONG_PROTO = 4 << 20  # bytes; reading or writing more than this would hold up the event loop
_LONG_JSON = 128 << 10


class Coding(Protocol):
    """One way to write a message down."""

    name: str
    long: int

    def encode(self, message: Message) -> bytes:
        """Bytes of a message."""
        ...

    def decode(self, data: bytes, kind: type[Message]) -> Message:
        """A message of bytes; raises InvalidArgument."""
        ...


class Binary:
    """protobuf."""

    name = "proto"
    long = _LONG_PROTO

    def encode(self, message: Message) -> bytes:
        return message.SerializeToString()

    def decode(self, data: bytes, kind: type[Message]) -> Message:
        try:
            return kind.FromString(data)
        except DecodeError:
            raise not_a_message() from None


class Json:
    """The canonical JSON mapping: lowerCamelCase names, bytes in base64, 64-bit integers as strings."""

    name = "json"
    long = _LONG_JSON

    def encode(self, message: Message) -> bytes:
        return json_bytes(json_format.MessageToDict(message))

    def decode(self, data: bytes, kind: type[Message]) -> Message:
        try:
            return json_format.Parse(data or b"{}", kind())
        except (json_format.ParseError, ValueError, RecursionError, AttributeError, TypeError) as error:
            # UnicodeDecodeError is a ValueError; the last two come of JSON that is no object.
            text = "nested too deep" if isinstance(error, RecursionError) else str(error)
            field, text = _place(text, kind)
            said = f"the body is no {kind.DESCRIPTOR.full_name} in JSON: {text}"
            raise InvalidArgument.at(field, said, reason="NOT_A_MESSAGE") from None


_AT = re.compile(r'(?:has no field named "(\w+)" )?at "?\w+((?:\.\w+(?:\[\d+\])?)*)"?\.?(?=\n|$)')
_IN_FIELD = re.compile(r"Failed to parse (\w+) field: ")


def _place(text: str, kind: type[Message]) -> tuple[str, str]:
    """Path of the field that json_format's error is about ("" where it does not say), and the error itself.

    Some errors end with `at "GenerateRequest.params"`. All are wrapped once for each level but those of a oneof:
    `Failed to parse params field: Failed to parse n field: WHAT..`; a path with a gap in it is none.
    """
    names = []
    while match := _IN_FIELD.match(text):
        names.append(match[1])
        text = text[match.end() :]
    text = text.rstrip(".")
    if at := _AT.search(text):
        return ".".join(name for name in (at[2].removeprefix("."), at[1]) if name), text
    level: Any = kind.DESCRIPTOR
    for name in names:
        field = level.fields_by_camelcase_name.get(name) if level is not None else None
        if field is None:
            return "", text
        level = field.message_type
    return ".".join(names), text


BINARY = Binary()
JSON = Json()


async def encode(coding: Coding, message: Message) -> bytes:
    """Bytes of a message, in a thread when it is long."""
    if message.ByteSize() > coding.long:
        return await asyncio.to_thread(coding.encode, message)
    return coding.encode(message)


async def decode(coding: Coding, data: bytes, kind: type[Message]) -> Message:
    """A message of bytes, in a thread when they are many."""
    if len(data) > coding.long:
        return await asyncio.to_thread(coding.decode, data, kind)
    return coding.decode(data, kind)


def json_bytes(value: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
