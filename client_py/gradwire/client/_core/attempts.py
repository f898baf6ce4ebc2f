"""The attempts of one call, and what is known of it when it ends without an answer.

Knows: which failures leave it open whether the server carries a call out, and what makes it safe to repeat. Does not
know: how an attempt is made, nor how one waits for the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from google.protobuf.message import Message

from gradwire.client._core.retry import wait_before_next
from gradwire.client._core.rpc import Encoded, Rpc
from gradwire.client._core.status import FirstCause, short_name
from gradwire.client.config import RetryConfig
from gradwire.client.errors import CallCancelledError, GradwireError, UnavailableError

_MAYBE = "The server may have carried this call out, or may still do so"


class Attempts:
    """Of a call of `rpc` with `request`. `safe`: it may be sent more than once."""

    def __init__(self, rpc: Rpc[Any, Any], request: Message | Encoded | None, safe: bool, retry: RetryConfig) -> None:
        self._rpc = rpc
        self._request_id = request_id_of(request)
        self._retry = retry if safe else RetryConfig(max_attempts=1)
        self._number = 1
        self._first = FirstCause()
        self._lost = False

    def failed(self, error: GradwireError, left: float) -> float | None:
        """Seconds to wait before the next attempt, of the `left` until the deadline; None: `error` ends the call."""
        error.attempts = self._number
        self._first.tell(error)
        self._lost = self._lost or not error._answered
        wait = wait_before_next(self._retry, error, self._number, left)
        self._number += 1
        if wait is None:
            self._tell(error)
        return wait

    def closed(self) -> CallCancelledError:
        """The error of a call under way when its client was closed."""
        error = CallCancelledError("the client was closed while the call was under way")
        error.method = short_name(self._rpc.path)
        error.attempts = self._number
        error._answered = False
        self._tell(error)
        return error

    def _tell(self, error: GradwireError) -> None:
        error.request_id = self._request_id
        # An answer that the server is not there says nothing of an earlier attempt; any other is this call's.
        if error._answered and not (self._lost and isinstance(error, UnavailableError)):
            return
        if self._request_id:
            error.message += (
                f". {_MAYBE}: repeat it with request_id={self._request_id!r} (this error's request_id), "
                "which gets its result and applies it once"
            )
        elif self._rpc.changes:
            error.message += f". {_MAYBE}: look before you repeat it"


@contextmanager
def part_of(request: Message) -> Iterator[None]:
    """Gives errors in the block the request id of `request`: of what is called before it, or after, on its behalf."""
    try:
        yield
    except GradwireError as error:
        error.request_id = request_id_of(request)
        raise


def request_id_of(request: Message | Encoded | None) -> str | None:
    """The id under which a server applies `request` once; None where it has none."""
    if not isinstance(request, Message):
        return None
    fields = request.DESCRIPTOR.fields_by_name
    holder: Any = request
    if "operation" in fields:
        holder = holder.operation
    elif "request_id" not in fields:
        return None
    return str(holder.request_id) or None
