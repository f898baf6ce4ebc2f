"""What all ArcticRL clients are: a connection, the jobs, and how both begin and end.

Knows: making jobs and finding them again, from any event loop and thread. Does not know: the documented methods,
or how a server is found (`attach` does). The connection lives on the process's one background loop, so that
making a client can block inside a running loop, and its methods can be awaited in any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from gradwire.client._core.loop import shared_loop
from gradwire.client.aio.client import AsyncClient
from gradwire.client.arctic.attach import Attachment, ServerState, attach
from gradwire.client.arctic.config import ArcticRLClientConfig, CommProtocol
from gradwire.client.arctic.jobs import JobPlan, default_temperature, plan_jobs
from gradwire.client.arctic.warning import warn
from gradwire.client.errors import CallCancelledError, DeadlineExceededError, NotFoundError, UnavailableError
from gradwire.client.sync.portal import Portal
from gradwire.client.types.jobs import JobKind

T = TypeVar("T")
_KINDS = (JobKind.TRAINING, JobKind.SAMPLING, JobKind.LOG_PROB)


class ArcticRLBase:
    """Jobs of one configuration. Making it blocks until they are ready."""

    protocol: ClassVar[CommProtocol] = "grpc"

    def __init__(
        self, config: ArcticRLClientConfig | Mapping[str, Any], arctic_rl_server_state: ServerState | None = None
    ) -> None:
        """Starts or finds the server, and makes the jobs or finds those whose ids are given.

        `arctic_rl_server_state` is what `get_server_state` of another client returned: its server is used.
        ValueError for a setting that is unknown or cannot be done; RuntimeError or TimeoutError with the
        server's last words when one does not start; NotFoundError for a job that is gone.
        """
        self._config = _checked(config, self.protocol)
        plan = plan_jobs(self._config)
        self._temperature = default_temperature(self._config)
        self._jobs: dict[JobKind, int] = {}
        for note in plan.notes:
            warn(note)
        self._attachment: Attachment | None = attach(self._config, arctic_rl_server_state)
        self._owner = not self._config.is_reconnect
        try:
            self._client = self._attachment.client(self._config)
            self._portal = Portal(self._client)
            shared_loop().run(self._begin(plan))
        except BaseException:
            self._release()
            raise

    async def _begin(self, plan: JobPlan) -> None:
        if self._config.is_reconnect:
            await self._find_jobs()
            return
        begun: list[int] = []
        try:
            created = await self._client.jobs.create(
                training=plan.training,
                sampling=plan.sampling,
                log_prob=plan.log_prob,
                on_progress=lambda line: begun.append(line.job_id),
                timeout=self._config.job_ready_timeout,
            )
        except DeadlineExceededError as late:
            # The server goes on for whoever asks again, which nobody will. The latest is the one that is starting.
            for number in sorted(set(begun), reverse=True):
                with suppress(NotFoundError):
                    await self._client.jobs.destroy(number)
            raise TimeoutError(
                f"the jobs were not ready within job_ready_timeout, {self._config.job_ready_timeout} s"
            ) from late
        self._jobs = {job.kind: job.job_id for job in created}

    async def _find_jobs(self) -> None:
        for kind in _KINDS:
            number = getattr(self._config, f"{kind.value}_job_id")
            if number is None:
                continue
            job = await self._client.jobs.get(number)
            if job.kind is not kind:
                raise ValueError(f"{kind.value}_job_id is {number}, but that job is a {job.kind.value} job")
            self._jobs[kind] = number

    @property
    def config(self) -> ArcticRLClientConfig:
        """The configuration that the client was made from."""
        return self._config

    @property
    def training_job_id(self) -> int:
        """ValueError when there is no training job."""
        return self._job(JobKind.TRAINING)

    @property
    def sampling_job_id(self) -> int:
        """ValueError when there is no sampling job."""
        return self._job(JobKind.SAMPLING)

    @property
    def log_prob_job_id(self) -> int:
        """ValueError when there is no log-prob job."""
        return self._job(JobKind.LOG_PROB)

    def reconnect_config(self, *, include_token: bool = False) -> ArcticRLClientConfig:
        """What another process needs to use the same jobs: it can be pickled, or written as JSON.

        The token stays out unless `include_token`; without it the other process takes GRADWIRE_TOKEN. Even
        then JSON holds it only when asked: `model_dump_json(context={"secrets": True})`.
        """
        attachment = self._attached()
        ids: dict[str, Any] = {f"{kind.value}_job_id": number for kind, number in self._jobs.items()}
        if not ids:
            raise ValueError("there are no jobs to reconnect to: this client is shut down")
        kept = {
            name: getattr(self._config, name)
            for name in (
                "model_name", "training_gpus", "sampling_gpus", "log_prob_gpus", "log_prob_engine", "colocate",
                "cuda_ipc", "low_memory", "seed", "ds_worker_config", "job_ready_timeout", "server_logs",
            )
        }  # fmt: skip
        if include_token:
            kept["token"] = self._config.secret()
        return ArcticRLClientConfig(**kept, **ids, **attachment.reconnect(self._config), comm_protocol=self.protocol)

    def get_server_state(self) -> ServerState:
        """Where the server is, for a further client of this process or another: plain text that can be pickled."""
        return self._attached().state

    async def shutdown(self) -> None:
        """Destroys the training, sampling and log-prob job, in this order, and forgets their ids.

        Also those of a client that was made by reconnecting: they are the same jobs. Then stops the server, if
        this client started it. Shutting down again is fine; so are jobs that are gone. `close` destroys nothing.
        """
        if self._attachment is None:
            return
        try:
            await self._run(self._destroy_jobs())
        finally:
            await asyncio.to_thread(self._release)

    async def _destroy_jobs(self) -> None:
        for kind in _KINDS:
            number = self._jobs.pop(kind, None)
            if number is not None:
                try:
                    await self._client.jobs.destroy(number)
                except NotFoundError:
                    pass  # it is gone, which is what was asked for
                except UnavailableError:
                    if not self._attached().on_stop:
                        raise  # else the server is this client's own, and its jobs end with it

    async def close(self) -> None:
        """Disconnects. Jobs stay, unless this client started their server: that ends with its owner."""
        if self._attachment is not None:
            await asyncio.to_thread(self._release)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Shuts down; a client that reconnected only disconnects."""
        await (self.shutdown() if self._owner else self.close())

    def __repr__(self) -> str:
        jobs = ", ".join(f"{kind.value}={number}" for kind, number in self._jobs.items())
        where = "closed" if self._attachment is None else self._attachment.address
        return f"{type(self).__name__}({where}, {jobs or 'no jobs'})"

    def _job(self, kind: JobKind) -> int:
        try:
            return self._jobs[kind]
        except KeyError:
            raise ValueError(
                f"there is no {kind.value} job: give {kind.value}_gpus above 0 (and shutdown ends all jobs)"
            ) from None

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits `work`, which runs on the background loop."""
        if self._attachment is None:
            work.close()
            raise RuntimeError("this client is closed; make a new one")
        future: Future[T] = self._portal.submit(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                raise CallCancelledError("the client was closed while the call was under way") from None
            raise

    def _attached(self) -> Attachment:
        if self._attachment is None:
            raise RuntimeError("this client is closed; make a new one")
        return self._attachment

    def _release(self) -> None:
        """Disconnects, and stops a server of its own. Blocks."""
        attachment, self._attachment = self._attachment, None
        self._jobs = {}
        try:
            if hasattr(self, "_portal"):
                self._portal.close()
        finally:
            if attachment is not None:
                attachment.stop()

    _client: AsyncClient
    _portal: Portal


def _checked(config: ArcticRLClientConfig | Mapping[str, Any], protocol: CommProtocol) -> ArcticRLClientConfig:
    if isinstance(config, ArcticRLClientConfig):
        checked = config.checked()
    elif isinstance(config, Mapping):
        checked = ArcticRLClientConfig(**config)
    else:
        raise TypeError(f"config is a {type(config).__name__}; it is an ArcticRLClientConfig")
    if checked.comm_protocol != protocol:
        raise ValueError(
            f'config.comm_protocol is "{checked.comm_protocol}", and this client speaks "{protocol}"; '
            "create_arctic_rl_client chooses the right one"
        )
    return checked
