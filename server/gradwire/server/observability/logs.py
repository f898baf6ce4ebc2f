"""Logs go to stderr, one line an event; stdout belongs to the ready line."""

from __future__ import annotations

import logging
import os
import sys


def configure(level: str) -> None:
    """Set up the root logger. Libraries speak from WARNING on, gradwire from `level`."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    logging.getLogger("gradwire").setLevel(level.upper())
    if level != "debug":
        logging.getLogger("vllm").setLevel(logging.ERROR)  # until vLLM sets up its own logging


def heed_vllm_level() -> None:
    """In a process that vLLM spawned, before vllm is imported: VLLM_LOGGING_LEVEL holds from then on.

    vLLM heeds it only once it has set up its logging, and its modules warn while they are imported: each CPU engine
    would write a bare line about Triton, which its grammar library brings along and which it does not need.
    """
    if level := os.environ.get("VLLM_LOGGING_LEVEL"):
        logging.getLogger("vllm").setLevel(level.upper())
