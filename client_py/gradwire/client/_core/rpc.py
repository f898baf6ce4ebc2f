"""What the core knows of an RPC: its path, its types, and whether it may be sent twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

RPCS: dict[str, Rpc] = {}  # type: ignore[type-arg]  # every request and response type
"""All RPCs that a client wraps, by path."""


@dataclass(frozen=True, slots=True)
class Rpc(Generic[Request, Response]):
    """One RPC. `repeatable`: sending it twice does what sending it once does, so UNAVAILABLE is retried.

    `changes`: it changes something, and has no request id under which it could be repeated.
    """

    path: str
    request: type[Request]
    response: type[Response]
    repeatable: bool
    streaming: bool = False
    changes: bool = False

    def __post_init__(self) -> None:
        RPCS[self.path] = self


@dataclass(frozen=True, slots=True)
class Encoded:
    """A request that is encoded already; stands in for its message."""

    data: bytes

    def SerializeToString(self) -> bytes:
        """As a message has it."""
        return self.data

    def ByteSize(self) -> int:
        """As a message has it."""
        return len(self.data)
