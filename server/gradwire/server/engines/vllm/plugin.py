"""What vLLM loads in each of its processes (entry point group `vllm.general_plugins`).

It only makes names known; it changes nothing for someone who uses vLLM without gradwire.
"""

from __future__ import annotations

BACKEND = "gradwire_shm"


def register() -> None:
    """Make the shared-memory weight transfer known to vLLM. Legal twice."""
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory

    try:
        WeightTransferEngineFactory.register_engine(
            BACKEND, "gradwire.server.engines.vllm.weight_transfer", "SharedMemoryWeightTransfer"
        )
    except ValueError:
        pass  # vLLM loads plugins more than once in a process
