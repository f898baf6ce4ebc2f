"""Whatever goes wrong in a call becomes a status with google.rpc details.

An exception that is not a GradwireError is a bug of ours: its text may hold paths or secrets, so
the caller gets a correlation id and the log gets the rest.
"""

from __future__ import annotations

import logging
import uuid

from google.protobuf import descriptor_pool
from google.rpc import status_pb2

from gradwire.server.codec.status import to_status
from gradwire.server.errors import GradwireError, InvalidArgument, Unimplemented

log = logging.getLogger(__name__)


def status_of(method: str, error: BaseException) -> status_pb2.Status:
    """The status of a failed call of `method`; what an operator should know of goes to the log."""
    return to_status(shown(method, error))


def shown(method: str, error: BaseException) -> GradwireError:
    """What the caller of `method` may see of an error; what an operator should know of goes to the log."""
    if not isinstance(error, GradwireError):
        return unexpected(method, error)
    if type(error) is GradwireError:  # INTERNAL of ours
        log.error("%s: %s", method, error.message)
    return error


def unexpected(method: str, error: BaseException) -> GradwireError:
    """Log a bug and make the error that the caller may see."""
    correlation_id = uuid.uuid4().hex
    log.error("%s failed, correlation id %s", method, correlation_id, exc_info=error)
    return GradwireError(
        "INTERNAL",
        f"an unexpected error; the server's log has it under {correlation_id}",
        metadata={"correlation_id": correlation_id},
    )


def not_a_message() -> InvalidArgument:
    """Bytes that are no message."""
    return InvalidArgument.at("", "the bytes are no message of this method's type", reason="NOT_A_MESSAGE")


def method_not_served(path: str) -> Unimplemented:
    """A method that there is not; with those that its service has in the contract."""
    service, _, method = path.strip("/").rpartition("/")
    try:
        methods = [found.name for found in descriptor_pool.Default().FindServiceByName(service).methods]
    except (KeyError, TypeError, UnicodeError):
        methods = []
    if not methods or method in methods:
        said = "this server does not serve this method; GetCapabilities lists services"
    else:
        said = f"{service} has no method of that name; it has {', '.join(methods)}"
    return Unimplemented("METHOD_NOT_SERVED", said)
