"""Between well-known time types and Python's: aware datetimes, float seconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp


def moment(message: Message, field: str) -> datetime | None:
    """UTC time in a Timestamp field of `message`; None when it is absent."""
    if not message.HasField(field):
        return None
    value: Timestamp = getattr(message, field)
    return value.ToDatetime(tzinfo=UTC)


def seconds(value: Duration) -> float:
    """Float seconds of a Duration."""
    return value.seconds + value.nanos / 1e9


def duration(value: float | None, where: str) -> Duration | None:
    """A Duration of `value` seconds; None stays None."""
    if value is None:
        return None
    result = Duration()
    try:
        result.FromTimedelta(timedelta(seconds=value))
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"{where} is {value!r}; it is a finite number of seconds") from error
    return result
