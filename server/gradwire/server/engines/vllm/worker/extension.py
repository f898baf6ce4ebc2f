"""What gradwire adds to vLLM's worker: mixed into its class (`worker_extension_cls`).

Importing this module in a worker, before the model is loaded, also installs the CPU fixes; vLLM
imports it exactly then. Methods have a prefix: vLLM refuses names that the worker has already.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import psutil  # type: ignore[import-untyped]
import torch
from vllm.platforms import current_platform

from gradwire.server.engines.vllm.settings import FRONT_PID
from gradwire.server.engines.vllm.worker import digest

if current_platform.is_cpu():
    from gradwire.server.engines.vllm.worker import cpu_linear, cpu_sampling, cpu_sleep

    cpu_linear.install()
    cpu_sampling.install()
    cpu_sleep.install()


def _die_with(front: psutil.Process) -> None:
    """A front process that was killed tells nobody; its engine must not live on with its memory."""
    while front.is_running() and front.status() != psutil.STATUS_ZOMBIE:
        time.sleep(1)
    os._exit(1)


if front_pid := os.environ.get(FRONT_PID):
    threading.Thread(
        target=_die_with, args=(psutil.Process(int(front_pid)),), daemon=True, name="gradwire-front-watch"
    ).start()


class WorkerExtension:
    """Remote calls of the front process, by `collective_rpc`."""

    model_runner: Any
    model_config: Any
    weight_transfer_engine: Any
    _weight_update_active: bool

    def gradwire_checksums(self) -> list[tuple[str, str, list[int], str]]:
        """See digest.checksums."""
        return digest.checksums(self._gradwire_model(), self.model_config.dtype)

    def gradwire_squared_norm(self) -> float:
        """See digest.squared_norm."""
        return digest.squared_norm(self._gradwire_model())

    def gradwire_update_failure(self) -> str:
        """Why the started weight update could not be staged; empty when it was."""
        return str(self.weight_transfer_engine.failure)

    def gradwire_discard_update(self) -> None:
        """Drop a weight update that was started and not finished. Legal at any time."""
        self.weight_transfer_engine.discard()
        self._weight_update_active = False

    def gradwire_reload_from_folder(self) -> None:
        """Load the weights of the model's folder again (a GPU drops them at sleep level 2)."""
        self.model_runner.reload_weights()

    def gradwire_device_bytes(self) -> int:
        """Memory in use on this worker's GPU, by whomever: vLLM's sleep works below torch's own counters."""
        free, total = torch.cuda.mem_get_info()
        return int(total - free)

    def _gradwire_model(self) -> torch.nn.Module:
        model: torch.nn.Module = self.model_runner.get_model()
        if current_platform.is_cpu():
            digest.check_packed(model)
        return model
