"""Addresses to listen on: taken apart, and who can reach them."""

from __future__ import annotations

import ipaddress


def split_address(value: str) -> tuple[str, int]:
    """`HOST:PORT` taken apart; IPv6 as `[::1]:50051`."""
    host, colon, port = value.rpartition(":")
    in_brackets = host.startswith("[") and host.endswith("]")
    numeric = port.isascii() and port.isdigit() and int(port) <= 65535
    if not colon or not host or not numeric or (":" in host and not in_brackets):
        raise ValueError(f"{value!r} is no address; write HOST:PORT, like 127.0.0.1:50051")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
