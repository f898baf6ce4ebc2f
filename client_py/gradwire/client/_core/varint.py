"""protobuf's numbers of as many bytes as they need: https://protobuf.dev/programming-guides/encoding/#varints."""

from __future__ import annotations


def varint(value: int) -> bytes:
    """`value`, 0 and above, seven bits a byte, the lowest first."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
