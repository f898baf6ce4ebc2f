"""The part of the sampling engine that runs inside vLLM's worker processes."""
