"""A sampling engine on vLLM.

`VllmSampler` (engine.py) runs in the front process and talks to vLLM's AsyncLLM; `worker/` runs
inside vLLM's worker processes. Both sides import vllm when they are used, not before.
"""
