"""Logs go to stderr, one line an event; stdout belongs to the ready line."""

from __future__ import annotations

import logging
import sys


def configure(level: str) -> None:
    """Set up the root logger. Libraries speak from WARNING on, gradwire from `level`."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    logging.getLogger("gradwire").setLevel(level.upper())
    if level != "debug":
        logging.getLogger("vllm").setLevel(logging.ERROR)  # until vLLM sets up its own logging
