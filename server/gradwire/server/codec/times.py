"""Unix seconds and seconds <-> the well-known types."""

from __future__ import annotations

from google.protobuf import duration_pb2, timestamp_pb2


def timestamp(unix: float) -> timestamp_pb2.Timestamp:
    """Unix seconds as a Timestamp."""
    message = timestamp_pb2.Timestamp()
    message.FromNanoseconds(int(unix * 1e9))
    return message


def timestamp_us(unix_us: int) -> timestamp_pb2.Timestamp:
    """Unix microseconds as a Timestamp."""
    message = timestamp_pb2.Timestamp()
    message.FromMicroseconds(unix_us)
    return message


def duration(seconds: float) -> duration_pb2.Duration:
    """Seconds as a Duration."""
    whole = int(seconds)
    return duration_pb2.Duration(seconds=whole, nanos=int((seconds - whole) * 1e9))
