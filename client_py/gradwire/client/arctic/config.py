"""ArcticRLClientConfig: everything that a client is made from.

Knows: names, defaults and ranges. Does not know: what becomes of the engines' own settings (`jobs` does), or
how a server is reached (`attach` does).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FieldSerializationInfo,
    SecretStr,
    field_serializer,
    model_validator,
)

from gradwire.client._convert.nearest import check_names

Backend = Literal["local", "dss-platform", "remote"]
CommProtocol = Literal["grpc", "http", "ray"]
LogProbEngineName = Literal["vllm", "deepspeed"]

_DEFAULT_SEED = 42
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
Workers = Annotated[int, Field(ge=0, le=1024, strict=True)]
JobId = Annotated[int, Field(ge=1, strict=True)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _seed(value: Any) -> Any:
    return _DEFAULT_SEED if value is None else value


class ArcticRLClientConfig(BaseModel):
    """Configuration of an ArcticRL client. An unknown field is an error that names the nearest one.

    A job is made for each of `training_gpus`, `sampling_gpus` and `log_prob_gpus` that is above 0; on a CPU
    they count processes. With any of the three ids given, the client connects to those jobs and makes none.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, protected_namespaces=())

    backend: Backend = "local"
    """"local" starts a server and stops it at shutdown; "dss-platform" and "remote" (the same) use a running one."""
    comm_protocol: CommProtocol = "grpc"
    """How calls travel. "ray": the server is a Ray actor, found by Ray and called over gRPC."""
    checkpoint_path: str | None = None
    """Folder of the checkpoints of a server that this client starts. Default: the server's own."""
    host: str | None = None
    """Of a running server: its name; default 127.0.0.1. Of one to start: 127.0.0.1 is the only choice."""
    port: Annotated[int, Field(ge=1, le=65535, strict=True)] | None = None
    """Default: 50051 for gRPC and 8080 for HTTP on a running server; a free one where a server is started."""
    model_name: Annotated[str, Field(min_length=1, max_length=1024)]
    """A name (`gradwire model list`), a folder on the server, or "checkpoint:NAME"."""
    ds_config: dict[str, Any] = Field(default_factory=dict)
    """DeepSpeed settings of the trainer, as in its JSON file; docs/arctic.md lists the keys."""
    training_config: dict[str, Any] | None = None
    """Optimizer, schedule, loss of the trainer."""
    vllm_config: dict[str, Any] | None = None
    """vLLM's settings of the sampler."""
    log_prob_ds_config: dict[str, Any] | None = None
    """DeepSpeed settings of a log-prob job with log_prob_engine="deepspeed"."""
    ds_worker_config: dict[str, Any] | None = None
    """What a worker of the trainer does: micro-batches, checkpointing of activations, temperature."""
    arctic_inference_config: dict[str, Any] | None = None
    """Options of ArcticInference. Only ones that are switched off are accepted."""
    full_determinism: bool = False
    seed: Annotated[int, Field(ge=0, le=4294967295, strict=True), BeforeValidator(_seed)] = _DEFAULT_SEED
    """Seeds the trainer and requests without a seed of their own."""
    training_gpus: Workers = 0
    """Data-parallel workers of the trainer."""
    sampling_gpus: Workers = 0
    """Of the sampler: replicas times tensor_parallel_size."""
    log_prob_gpus: Workers = 0
    """Workers of the log-prob job."""
    log_prob_engine: LogProbEngineName = "vllm"
    colocate: bool = False
    """Training and sampling share devices. Here they always do."""
    cuda_ipc: bool = False
    """sync_weights always asks for CUDA IPC."""
    low_memory: bool = False
    """sync_weights always moves one tensor at a time."""
    server_logs: bool = True
    """The log of a server that this client starts goes to stderr."""
    ray_auto_attach: bool = True
    """Connect to (or start) Ray where the process has not; False: an error."""
    startup_timeout: Seconds = 300.0
    """For a server to start, in seconds."""
    health_check_interval: Seconds = 2.0
    """How often a server that is starting is looked at, in seconds."""
    job_ready_timeout: Seconds = 600.0
    """For the jobs to be ready, in seconds."""
    training_job_id: JobId | None = None
    sampling_job_id: JobId | None = None
    log_prob_job_id: JobId | None = None
    token: SecretStr | None = None
    """Bearer token of a running server; default GRADWIRE_TOKEN. Never shown, and never serialised unasked."""
    tls: bool = False
    """Connect with TLS; `tls_ca` implies it."""
    tls_ca: str | None = None
    """Certificates that the server's must descend from: PEM text, or the path of a file."""
    ray_address: str | None = None
    """Ray cluster. Default: the one that is running here, else a new one of this process."""
    ray_server: str | None = None
    """Name of the server's Ray actor. Default: a new name, or the only server that there is."""

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            check_names("field", values, cls.model_fields)
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.is_reconnect and not (self.training_gpus or self.sampling_gpus or self.log_prob_gpus):
            raise ValueError(
                "there is no job to make: at least one of training_gpus, sampling_gpus and log_prob_gpus is above 0 "
                "(or give the ids of jobs that exist)"
            )
        if self.comm_protocol == "ray" and (self.host is not None or self.port is not None):
            raise ValueError('comm_protocol="ray" finds its server through Ray; leave host and port out')
        if self.comm_protocol != "ray" and (self.ray_address is not None or self.ray_server is not None):
            raise ValueError('ray_address and ray_server go only with comm_protocol="ray"')
        if self.starts_server:
            self._check_local()
        return self

    def _check_local(self) -> None:
        if self.host is not None and self.host not in _LOOPBACK:
            raise ValueError(
                f'host is {self.host!r}, but backend="local" serves only this machine, on 127.0.0.1; for others, run '
                '`gradwire serve` with TLS and tokens there and connect with backend="remote"'
            )
        if self.token is not None or self.tls or self.tls_ca is not None:
            raise ValueError('token, tls and tls_ca are of a running server; backend="local" takes none')

    @field_serializer("token")
    def _keep_secret(self, token: SecretStr | None, info: FieldSerializationInfo) -> str | None:
        # A masked secret would be sent as if it were one; absent, GRADWIRE_TOKEN of the reader's stands in.
        asked = isinstance(info.context, Mapping) and info.context.get("secrets")
        return token.get_secret_value() if token is not None and asked else None

    @property
    def is_reconnect(self) -> bool:
        """It names jobs that exist."""
        return not (self.training_job_id is None and self.sampling_job_id is None and self.log_prob_job_id is None)

    @property
    def starts_server(self) -> bool:
        """A client made from it starts a server."""
        return self.backend == "local" and not self.is_reconnect

    def checked(self) -> Self:
        """A copy that has been validated anew: fields may have been assigned since."""
        return type(self)(**{name: getattr(self, name) for name in self.model_fields_set})

    def tls_ca_pem(self) -> str | None:
        """`tls_ca` as PEM text. OSError when its file cannot be read."""
        if self.tls_ca is None or "-----BEGIN" in self.tls_ca:
            return self.tls_ca
        return Path(self.tls_ca).read_text(encoding="ascii")

    def secret(self) -> str | None:
        """The token, or GRADWIRE_TOKEN of the environment."""
        return self.token.get_secret_value() if self.token is not None else os.environ.get("GRADWIRE_TOKEN") or None
