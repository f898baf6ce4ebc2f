"""The line to one vLLM engine: start it, ask it things, notice its death, stop it.

Knows processes and liveness. Does not know what is asked (sampling, weights, sleep).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

from gradwire.server.engines.resident import resident_bytes
from gradwire.server.engines.sampling import SamplerConfig
from gradwire.server.engines.vllm import processes
from gradwire.server.engines.vllm.errors import engine_dead, translated
from gradwire.server.engines.vllm.limits import engine_config
from gradwire.server.engines.vllm.liveness import Watchdog
from gradwire.server.engines.vllm.quiet import tell_deaths_in_a_line
from gradwire.server.engines.vllm.settings import engine_args, engine_environment, environment, on_cpu
from gradwire.server.errors import GradwireError, InvalidArgument, Unavailable

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

T = TypeVar("T")

LIVENESS_PERIOD_S = 0.5
SHUTDOWN_GRACE_S = 3.0

_start_lock = threading.Lock()  # a start changes os.environ of the whole process for its children


class EngineLink:
    """One AsyncLLM from its start to its end. Use it from one event loop."""

    def __init__(self) -> None:
        self.cpu = False
        self._llm: AsyncLLM | None = None
        self._watchdog: Watchdog | None = None
        self._stuck = ""  # why, once the engine was found so
        self._lasting = 0  # calls that may take long, under way

    async def start(self, config: SamplerConfig) -> None:
        """Start the engine's processes and load the model.

        Raises InvalidArgument when the configuration does not fit the model, GradwireError
        (INTERNAL) when the engine does not come up; the reason is then in the server's log. A
        cancellation is raised when the start has ended, and nothing runs then.
        """
        starting = asyncio.ensure_future(asyncio.to_thread(self._start, config))
        try:
            self._llm = llm = await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait({starting})
            if starting.exception() is None:
                await asyncio.to_thread(_stop, starting.result())
            raise
        self._watchdog = Watchdog(llm.get_weight_version, lambda: processes.engine_processes(llm))

    def _start(self, config: SamplerConfig) -> AsyncLLM:
        from vllm.v1.engine.async_llm import AsyncLLM

        self.cpu = on_cpu()
        with _start_lock, environment(engine_environment(config, cpu=self.cpu)):
            try:
                arguments = engine_args(config, cpu=self.cpu)
                made = engine_config(arguments, config, arguments.kv_cache_memory_bytes or 0)
                return AsyncLLM.from_vllm_config(made, disable_log_stats=arguments.disable_log_stats)
            except ValueError as error:  # pydantic's and vLLM's own checks of arguments
                raise InvalidArgument.at("config", str(error)) from error
            except RuntimeError as error:
                raise GradwireError(
                    "ENGINE_START_FAILED", f"vLLM did not start; the server's log says why: {error}"
                ) from error
            finally:
                tell_deaths_in_a_line()

    @property
    def running(self) -> bool:
        """Between `start` and `stop`."""
        return self._llm is not None

    @property
    def llm(self) -> AsyncLLM:
        """vLLM's client. Raises Unavailable before `start` and after `stop`."""
        if self._llm is None:
            raise Unavailable("ENGINE_NOT_RUNNING", "the sampling engine is not running")
        return self._llm

    def check(self) -> None:
        """Raises Unavailable when a process of the engine is dead."""
        if self._stuck:
            raise Unavailable("ENGINE_NOT_ANSWERING", f"the sampling engine was stopped: {self._stuck}")
        if self.llm.errored:
            raise engine_dead(processes.exit_text(self.llm))

    async def check_answers(self) -> None:
        """`check`, and whether the engine still answers: one that is stuck is killed, which frees whoever waits."""
        self.check()
        if self._watchdog is not None and (why := await self._watchdog.look(patient=self._lasting > 0)):
            self._stuck = why
            await asyncio.to_thread(processes.kill, processes.engine_processes(self.llm))
            self.check()

    async def call(self, work: Awaitable[T]) -> T:
        """Await an answer of the engine's processes; Unavailable when they die instead of answering."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=LIVENESS_PERIOD_S))[0]:
                self.check()
        except BaseException:
            task.cancel()
            raise
        with translated():
            return task.result()

    async def call_to_the_end(self, work: Awaitable[T]) -> T:
        """As `call`, for what must not stop half way and may take long: a cancellation is raised after it."""
        task = asyncio.ensure_future(self.call(work))
        self._lasting += 1
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task})
            raise
        finally:
            self._lasting -= 1

    async def workers(self, method: str, *arguments: object) -> list[Any]:
        """What each worker answers to a call of ours (worker/extension.py)."""
        answers: list[Any] = await self.call(self.llm.collective_rpc(f"gradwire_{method}", args=arguments))
        return answers

    async def memory(self) -> int:
        """Bytes that the engine's processes hold, see resident.py; on a GPU those in use on its workers' devices."""
        llm = self.llm
        if not self.cpu:
            return sum(await self.workers("device_bytes"))
        return await asyncio.to_thread(lambda: resident_bytes(processes.engine_processes(llm)))

    async def stop(self) -> None:
        """Stop the engine's processes; returns when they are gone. Legal twice."""
        llm, self._llm = self._llm, None
        if self._watchdog is not None:
            self._watchdog.stop()
        if llm is not None:
            await asyncio.to_thread(_stop, llm)


def _stop(llm: AsyncLLM) -> None:
    running = processes.engine_processes(llm)
    llm.shutdown(timeout=SHUTDOWN_GRACE_S)
    llm.shutdown = lambda *_: None  # its destructor calls it again, at interpreter exit in vain
    processes.kill_leftovers(running, grace_s=SHUTDOWN_GRACE_S)
