"""A whole server in this process, on fake engines: App with its real doors, services and interceptors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from gradwire.server.app import App
from gradwire.server.codec.status import DETAILS_KEY
from gradwire.server.codec.tensor import array_to_tensor
from gradwire.server.config import Settings
from gradwire.v1 import (
    admin_pb2_grpc,
    deployment_pb2_grpc,
    inference_pb2_grpc,
    job_pb2,
    job_pb2_grpc,
    rollout_pb2_grpc,
    sampling_params_pb2,
    sampling_pb2_grpc,
    session_pb2_grpc,
    tensor_pb2,
    training_pb2,
    training_pb2_grpc,
    weight_pb2_grpc,
)
from tests.fake_engines import FakeEngines


@dataclass
class Served:
    """A running server and a client of it."""

    app: App
    engines: FakeEngines
    channel: aio.Channel

    def __post_init__(self) -> None:
        self.sampling: Any = sampling_pb2_grpc.SamplingServiceStub(self.channel)
        self.training: Any = training_pb2_grpc.TrainingServiceStub(self.channel)
        self.weights: Any = weight_pb2_grpc.WeightServiceStub(self.channel)
        self.jobs: Any = job_pb2_grpc.JobServiceStub(self.channel)
        self.deployments: Any = deployment_pb2_grpc.DeploymentServiceStub(self.channel)
        self.inference: Any = inference_pb2_grpc.InferenceServiceStub(self.channel)
        self.sessions: Any = session_pb2_grpc.SessionServiceStub(self.channel)
        self.rollouts: Any = rollout_pb2_grpc.RolloutServiceStub(self.channel)
        self.admin: Any = admin_pb2_grpc.AdminServiceStub(self.channel)

    async def create(self, request: job_pb2.CreateJobsRequest | None = None, **options: Any) -> list[job_pb2.Job]:
        """Jobs, a training job when nothing else is asked for."""
        request = request or job_pb2.CreateJobsRequest(training=job_pb2.TrainingJobConfig())
        responses = [response async for response in self.jobs.CreateJobs(request, **options)]
        return list(responses[-1].created.jobs)

    def raw(self, method: str) -> Any:
        """A call of a method by its path, with an empty message."""
        channel: Any = self.channel
        return channel.unary_unary(method)(b"")

    async def training_job(self) -> int:
        (job,) = await self.create()
        return job.job_id


def model_folder(folder: Path) -> Path:
    """A folder that looks like a model from outside; fake engines do not look inside."""
    folder.mkdir(exist_ok=True)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    return folder


@asynccontextmanager
async def serving(folder: Path, **settings: Any) -> AsyncIterator[Served]:
    """A server with a built-in sampler (job 1); `settings` replace those that suit tests."""
    engines = settings.pop("engines", None) or FakeEngines()
    defaults: dict[str, Any] = {
        "grpc": "127.0.0.1:0",
        "model": str(model_folder(folder / "model")),
        "data_dir": folder / "data",
    }
    limits = {"drain_seconds": 0.0} | settings.pop("limits", {})
    defaults["insecure_no_auth"] = not settings.get("tokens")
    app = App(Settings(**{**defaults, "limits": limits, **settings}), engines, lambda line: None)
    await app.start()
    try:
        async with aio.insecure_channel(app.grpc_address) as channel:
            yield Served(app, engines, channel)
    finally:
        await app.stop()


class Failure:
    """A failed call: its code, its text, and the details by type."""

    def __init__(self, error: aio.AioRpcError) -> None:
        self.code = error.code()
        self.text = error.details() or ""
        packed = dict(error.trailing_metadata() or ()).get(DETAILS_KEY, b"")
        status = status_pb2.Status.FromString(packed if isinstance(packed, bytes) else b"")
        self.details = {detail.TypeName(): detail for detail in status.details}

    def _detail(self, message: Any) -> Any:
        packed = self.details.get(message.DESCRIPTOR.full_name)
        assert packed is not None, f"no {message.DESCRIPTOR.name} in {sorted(self.details)}: {self.text}"
        packed.Unpack(message)
        return message

    @property
    def reason(self) -> str:
        info = self._detail(error_details_pb2.ErrorInfo())
        assert info.domain == "gradwire"
        return str(info.reason)

    @property
    def metadata(self) -> dict[str, str]:
        return dict(self._detail(error_details_pb2.ErrorInfo()).metadata)

    @property
    def fields(self) -> list[str]:
        return [violation.field for violation in self._detail(error_details_pb2.BadRequest()).field_violations]

    @property
    def retry_after(self) -> float:
        return float(self._detail(error_details_pb2.RetryInfo()).retry_delay.ToTimedelta().total_seconds())

    @property
    def resource(self) -> tuple[str, str]:
        info = self._detail(error_details_pb2.ResourceInfo())
        return info.resource_type, info.resource_name

    @property
    def precondition(self) -> tuple[str, str]:
        (violation,) = self._detail(error_details_pb2.PreconditionFailure()).violations
        return violation.type, violation.subject


async def failure(call: Any) -> Failure:
    """How a call fails; an AssertionError when it does not."""
    try:
        if hasattr(call, "read") and not isinstance(call, aio.UnaryUnaryCall | aio.StreamUnaryCall):
            messages: list[Message] = [message async for message in call]
            raise AssertionError(f"the stream ended well after {len(messages)} messages")
        answer = await call
    except aio.AioRpcError as error:
        return Failure(error)
    raise AssertionError(f"the call succeeded: {answer}")


def segments() -> set[str]:
    """Names of all segments of clients on this machine."""
    return {path.name for path in Path("/dev/shm").glob("gradwire-client-*")}


async def until(holds: Callable[[], bool | Awaitable[bool]], *, timeout_s: float = 20.0) -> None:
    """Wait for what has no event to wait for."""
    async with asyncio.timeout(timeout_s):
        while True:
            answer = holds()
            if answer if isinstance(answer, bool) else await answer:
                return
            await asyncio.sleep(0.005)


def text_prompt(text: str) -> sampling_params_pb2.Prompt:
    return sampling_params_pb2.Prompt(text=text)


def ids_prompt(*ids: int) -> sampling_params_pb2.Prompt:
    return sampling_params_pb2.Prompt(token_ids=np.array(ids, "<i4").tobytes())


def small_batch() -> training_pb2.TrainingBatch:
    ids = array_to_tensor(np.array([[1, 2, 3], [4, 5, 6]], np.int32))
    return training_pb2.TrainingBatch(input_ids=tensor_pb2.BatchTensor(dense=ids))
