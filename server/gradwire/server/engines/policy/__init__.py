"""Policies and supervised models on ONNX Runtime, from a bundle without code.

`bundle` reads what `manifest` and `spaces` describe, `network` runs it, `values` checks what callers send, `heads`
makes actions of its outputs, `batcher` joins callers, and `engine` is the front of all of it.
"""

from __future__ import annotations

from pathlib import Path

from gradwire.server.engines.acting import ActingEngine
from gradwire.server.packages import require


async def load_policy(path: Path) -> ActingEngine:
    """Reads, checks and loads a bundle. ONNX Runtime is imported by the first one.

    Raises InvalidArgument with the bundle's file and field, FailedPrecondition without ONNX Runtime.
    """
    require("onnxruntime", "pip install -e '.[policy]'", reason="POLICIES_NOT_INSTALLED")
    from gradwire.server.engines.policy.engine import PolicyEngine

    return await PolicyEngine.load(path)
