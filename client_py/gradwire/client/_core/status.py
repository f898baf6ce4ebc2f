"""Errors from gRPC statuses: the `grpc-status-details-bin` trailer, read into one exception.

Knows: google.rpc's detail messages. Does not know: what is retried.
"""

from __future__ import annotations

import re
from typing import Any

import grpc
import grpc.aio

from gradwire.client.errors import BY_CODE, DeadlineExceededError, GradwireError, UnavailableError, UnknownError

DETAILS_TRAILER = "grpc-status-details-bin"
_TOO_LARGE = re.compile(r"larger than max \((\d+) vs\. (\d+)\)")
_DROPPED = re.compile("CANCELLED$|.*RST_STREAM")
"""gRPC's words for a call that the other end cancelled or reset; one that was cancelled here has others."""
_NOBODY = "no gradwire server answers"
_CONNECTING = re.compile("failed to connect|Cannot connect")
"""The words of gRPC and of aiohttp for a connection that was never made; so for those of the next two."""
_CLOSED = re.compile(
    "Socket closed|Cancelling all calls|GOAWAY|Stream removed|Connection reset|Broken pipe|Server disconnected"
)
_UNSENT = re.compile("failed to connect|cannot connect|connection timeout to host|resolution failed", re.IGNORECASE)
"""The words for a request that never left."""
_OPEN_CODES = frozenset({"DEADLINE_EXCEEDED", "CANCELLED", "UNAVAILABLE", "UNKNOWN", "INTERNAL"})
_LATE_REASON = "CALL_TIMEOUT"
_OTHER_NAME = re.compile("Hostname Verification Check failed|Hostname mismatch|IP address mismatch")
_CORRELATION_KEYS = ("correlation_id", "x-correlation-id", "x-request-id")


def error_from_rpc(error: grpc.aio.AioRpcError, method: str, address: str) -> GradwireError:
    """The exception for a failed call of `method` (a path) to `address`."""
    code = error.code().name
    trailers = {str(key): value for key, value in (error.trailing_metadata() or ())}
    fields = _read_details(trailers.get(DETAILS_TRAILER))
    message = _message(fields.pop("message", "") or error.details() or "", fields)
    answered = _answered(code, message, fields)
    if code == "RESOURCE_EXHAUSTED" and "reason" not in fields and (sizes := _TOO_LARGE.search(message)):
        message = _too_large(message, *sizes.groups())
        fields |= {"reason": "MESSAGE_TOO_LARGE", "metadata": dict(zip(("size", "limit"), sizes.groups(), strict=True))}
    elif code == "CANCELLED" and _DROPPED.match(message):
        # So ends a call that reaches gRPC's server just as it stops: no handler has seen it.
        code, message = "UNAVAILABLE", f"{address} dropped the call; it is shutting down, or a proxy in between is"
    elif code == "UNAVAILABLE" and not fields:  # else a server has said it
        message = _unreachable(address, message)
    elif code == "DEADLINE_EXCEEDED" and fields.get("reason", _LATE_REASON) == _LATE_REASON:
        message = _late(address)
    if "correlation_id" not in fields:
        known = (trailers[key] for key in _CORRELATION_KEYS if key in trailers)
        fields["correlation_id"] = next((str(value) for value in known), None)
    made = BY_CODE.get(code, UnknownError)(message, method=short_name(method), **fields)
    made._answered = answered
    return made


def deadline_passed(method: str, address: str) -> DeadlineExceededError:
    """The exception for a call of `method` whose deadline was watched here."""
    error = DeadlineExceededError(_late(address), method=short_name(method))
    error._answered = False
    return error


def stream_ended(method: str) -> UnavailableError:
    """The exception for a request that one stream after the other ended without a look at."""
    return UnavailableError("the server ends its streams; it is shutting down", method=short_name(method))


def short_name(path: str) -> str:
    """`SamplingService/Generate` of `/gradwire.v1.SamplingService/Generate`."""
    return path.rpartition(".")[2]


def _answered(code: str, message: str, fields: dict[str, Any]) -> bool:
    """Whether a failure is the server's answer, or its request never left. A gradwire server's have reasons."""
    if code == "RESOURCE_EXHAUSTED":  # the answer itself may be what is too large
        return not message.startswith("CLIENT: Received")
    if code not in _OPEN_CODES or fields.get("reason", _LATE_REASON) != _LATE_REASON:
        return True
    return code == "UNAVAILABLE" and _UNSENT.search(message) is not None


def _message(message: str, fields: dict[str, Any]) -> str:
    """`message`, with the bad fields that it does not already speak of."""
    unsaid = [(name, text) for name, text in fields.get("field_violations", ()) if text not in message]
    parts = [message] if message else []
    parts += [f"{name}: {text}" if name else text for name, text in unsaid]
    return "; ".join(parts)


def _late(address: str) -> str:
    return f"no answer from {address} within the call's timeout; pass a longer timeout= (seconds)"


def _unreachable(address: str, message: str) -> str:
    cause = f" ({message})" if message else ""
    if _OTHER_NAME.search(message):
        return (
            f"the certificate that {address} shows is not for this name{cause}. Call the server by a name that its "
            "certificate has, or say which one that is: tls=TLSConfig(server_name=...)"
        )
    if "CERTIFICATE_VERIFY_FAILED" in message:
        return (
            f"the certificate of {address} is not trusted{cause}. Name the file that it can be checked with: "
            "tls=TLSConfig(root_certificates=...), on the command line --ca"
        )
    if "security handshaker" in message:  # made here, of what TLSConfig names
        return (
            f"no connection to {address} can begin{cause}: a file of tls=TLSConfig(...) is no PEM, or client_key is "
            "not the key of client_certificate"
        )
    if "Secure read failed" in message or (address.startswith("https://") and _CLOSED.search(message)):
        return (
            f"{address} closed the TLS connection{cause}. If it always does, it may want a client certificate that its "
            "client_ca has signed: tls=TLSConfig(client_certificate=..., client_key=...)"
        )
    if _CLOSED.search(message):
        http = address.startswith("http://")
        hint = f". If the server has TLS, its address begins with {'https' if http else 'grpcs'}://"
        return f"{address} closed the connection{cause}{hint if http or _CONNECTING.search(message) else ''}"
    return (
        f"{_NOBODY} at {address}{cause}. Start one with `gradwire serve`, or give the "
        "address of another: Client(address) or the environment's GRADWIRE_ADDRESS"
    )


class FirstCause:
    """What was wrong at first, of all attempts of one call: that nobody answers later on says less."""

    def __init__(self) -> None:
        self._cause = ""

    def tell(self, error: GradwireError) -> None:
        """Put it into the message of a later attempt's `error` that knows only that nobody answers."""
        if not error.message.startswith(_NOBODY):
            self._cause = self._cause or error.message
        elif _CONNECTING.search(self._cause):  # of several addresses of one name, another one was tried last
            error.message = self._cause
        elif self._cause:
            error.message = f"the server went away during the call: {self._cause}; and since then {error.message}"


def _too_large(message: str, size: str, limit: str) -> str:
    """gRPC itself refuses a message above a cap, on either side, and gives two numbers."""
    if message.startswith("CLIENT"):
        verb = "an answer" if "Received" in message else "the request"
        return f"{verb} has {size} bytes; this client takes {limit} at most. Make it with a larger max_message_bytes="
    return (
        f"the request has {size} bytes; the server takes {limit} at most in one (its limits.max_message_bytes). "
        "Send fewer rows or prompts in a call; a batch for training can be sent first, with training.upload_batch"
    )


def _read_details(trailer: str | bytes | None) -> dict[str, Any]:
    """Keyword arguments of a GradwireError, from the trailer; unknown details are passed over."""
    if not isinstance(trailer, bytes):
        return {}
    from google.protobuf.message import DecodeError
    from google.rpc import error_details_pb2, status_pb2

    try:
        status = status_pb2.Status.FromString(trailer)
    except DecodeError:
        return {}
    found: dict[str, Any] = {"message": status.message}
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        bad = error_details_pb2.BadRequest()
        retry = error_details_pb2.RetryInfo()
        request = error_details_pb2.RequestInfo()
        if detail.Unpack(info):
            found["reason"] = info.reason
            found["metadata"] = dict(info.metadata)
            if "correlation_id" in info.metadata:
                found["correlation_id"] = info.metadata["correlation_id"]
        elif detail.Unpack(bad):
            found["field_violations"] = [(v.field, v.description) for v in bad.field_violations]
        elif detail.Unpack(retry):
            found["retry_after"] = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
        elif detail.Unpack(request) and request.request_id:
            found["correlation_id"] = request.request_id
    return found
