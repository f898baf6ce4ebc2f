"""What fakes send and how they fail: statuses with their details, and arrays as bytes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import grpc
import grpc.aio
import numpy as np
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2

Context = grpc.aio.ServicerContext[Any, Any]


def failure(code: str, message: str = "", *details: Message) -> status_pb2.Status:
    """A status with details, to put into `Fake.failures`."""
    packed = []
    for detail in details:
        item = AnyMessage()
        item.Pack(detail)
        packed.append(item)
    return status_pb2.Status(code=code_pb2.Code.Value(code), message=message, details=packed)


def retry_info(seconds: float) -> error_details_pb2.RetryInfo:
    """A wait that the server asks for."""
    info = error_details_pb2.RetryInfo()
    info.retry_delay.FromTimedelta(timedelta(seconds=seconds))
    return info


async def fail(context: Context, status: status_pb2.Status) -> None:
    """Ends the call as the server's error interceptor does."""
    code = next(c for c in grpc.StatusCode if c.value[0] == status.code)
    trailers = (("grpc-status-details-bin", status.SerializeToString()),) if status.details else ()
    await context.abort(code, status.message, trailing_metadata=trailers)


def int32(*values: int) -> bytes:
    """Token ids on the wire."""
    return np.array(values, "<i4").tobytes()


def float32(*values: float) -> bytes:
    """Log-probs on the wire."""
    return np.array(values, "<f4").tobytes()
