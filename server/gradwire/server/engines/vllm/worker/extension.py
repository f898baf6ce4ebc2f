"""What gradwire adds to vLLM's worker: mixed into its class (`worker_extension_cls`).

Importing this module in a worker, before the model is loaded, also installs the CPU fixes; vLLM
imports it exactly then. Methods have a prefix: vLLM refuses names that the worker has already.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil  # type: ignore[import-untyped]
import torch
from vllm.platforms import current_platform

from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.engines.vllm.plugin import FRONT_PID
from gradwire.server.engines.vllm.weight_transfer import views
from gradwire.server.engines.vllm.worker import digest
from gradwire.server.engines.vllm.worker.adapters import AdapterSlots, without_adapters

if current_platform.is_cpu():
    from gradwire.server.engines.vllm.worker import cpu_linear, cpu_lora, cpu_sampling, cpu_sleep

    cpu_linear.install()
    cpu_lora.install()
    cpu_sampling.install()
    cpu_sleep.install()


logger = logging.getLogger(__name__)


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

    def gradwire_checksums(self, adapter: int = 0) -> list[tuple[str, str, list[int], str]]:
        """See digest.checksums; of an adapter, see AdapterSlots."""
        if adapter:
            return self._gradwire_adapters().checksums(adapter)
        with without_adapters(self._gradwire_model()) as model:
            return digest.checksums(model, self.model_config.dtype)

    def gradwire_squared_norm(self, adapter: int = 0) -> float:
        """See digest.squared_norm; of an adapter, see AdapterSlots."""
        if adapter:
            return self._gradwire_adapters().squared_norm(adapter)
        with without_adapters(self._gradwire_model()) as model:
            return digest.squared_norm(model)

    def gradwire_stage_adapter(
        self, number: int, segment: str, tensors: list[tuple[str, str, list[int], int, int]], rank: int, alpha: float
    ) -> str:
        """See AdapterSlots.stage. The reason when it failed: a worker must not raise, see weight_transfer.py."""

        def stage() -> None:
            with SharedSegment.attach(segment) as mapped:
                self._gradwire_adapters().stage(number, dict(views(mapped, tensors)), rank, alpha)

        return _reason(stage)

    def gradwire_commit_adapter(self) -> str:
        """See AdapterSlots.commit; the reason when it failed."""
        return _reason(lambda: self._gradwire_adapters().commit())

    def gradwire_discard_adapter(self) -> str:
        """See AdapterSlots.discard; the reason when it failed."""
        return _reason(lambda: self._gradwire_adapters().discard())

    def gradwire_remove_adapter(self, number: int) -> str:
        """See AdapterSlots.remove; the reason when it failed."""
        return _reason(lambda: self._gradwire_adapters().remove(number))

    def gradwire_update_failure(self) -> str:
        """Why the started weight update could not be staged; empty when it was."""
        return str(self.weight_transfer_engine.failure)

    def gradwire_discard_update(self) -> None:
        """Drop a weight update that was started and not finished. Legal at any time."""
        self.weight_transfer_engine.discard()
        self._weight_update_active = False

    def gradwire_reload_from_folder(self) -> None:
        """Load the weights of the model's folder again (a GPU drops them at sleep level 2)."""
        with without_adapters(self.model_runner.get_model()):
            self.model_runner.reload_weights()

    def _gradwire_adapters(self) -> AdapterSlots:
        slots: AdapterSlots = vars(self).setdefault("_gradwire_slots", None) or AdapterSlots(self.model_runner)
        self._gradwire_slots = slots
        return slots

    def gradwire_device_bytes(self) -> int:
        """Memory in use on this worker's GPU, by whomever: vLLM's sleep works below torch's own counters."""
        free, total = torch.cuda.mem_get_info()
        return int(total - free)

    def _gradwire_model(self) -> torch.nn.Module:
        model: torch.nn.Module = self.model_runner.get_model()
        if current_platform.is_cpu():
            digest.check_packed(model)
        return model


def _reason(action: Callable[[], None]) -> str:
    """Why an action failed; empty when it did not."""
    try:
        action()
    except Exception as error:
        logger.exception("an adapter could not be changed")
        return f"{type(error).__name__}: {error}"
    return ""
