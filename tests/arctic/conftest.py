"""One server for all of these tests: a Ray actor, training, sampling and scoring; reached in three ways.

This folder is a package so that the server ends with its last test and not with the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import ray

from gradwire.client.arctic import ArcticRLClient, ArcticRLClientConfig, create_arctic_rl_client

PROTOCOLS = ("grpc", "http", "ray")
# float32 on both sides: their log-probs are compared.
CONFIG: dict[str, Any] = {
    "model_name": "tiny",
    "training_gpus": 2,
    "sampling_gpus": 1,
    "log_prob_gpus": 1,
    "log_prob_engine": "deepspeed",
    "ds_config": {"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "gradient_clipping": 1.0},
    "vllm_config": {"dtype": "float32", "kv_cache_bytes": 64 << 20},
    "server_logs": False,
}


@pytest.fixture(scope="package")
def ray_here() -> Iterator[None]:
    """A Ray cluster of this process."""
    ray.init(
        address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20
    )  # fmt: skip
    yield
    ray.shutdown()


@pytest.fixture(scope="package")
def owner(ray_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArcticRLClient]:
    """The client that started the server and made the jobs."""
    folder = str(tmp_path_factory.mktemp("arctic"))
    made = create_arctic_rl_client(ArcticRLClientConfig(comm_protocol="ray", checkpoint_path=folder, **CONFIG))
    yield made
    asyncio.run(made.shutdown())


def over(owner: ArcticRLClient, protocol: str) -> ArcticRLClientConfig:
    """The owner's jobs, reached by `protocol`."""
    config = owner.reconnect_config()
    if protocol == "ray":
        return config
    host, _, port = owner.get_server_state()[protocol].rpartition(":")  # type: ignore[literal-required]
    fields: dict[str, Any] = {
        name: getattr(config, name) for name in ("training_job_id", "sampling_job_id", "log_prob_job_id")
    }
    fields.update(backend="dss-platform", comm_protocol=protocol, host=host, port=int(port))
    return ArcticRLClientConfig(model_name="tiny", **fields)


@pytest.fixture(params=PROTOCOLS)
async def client(request: pytest.FixtureRequest, owner: ArcticRLClient) -> AsyncIterator[ArcticRLClient]:
    """A client of the owner's jobs, over each protocol. Leaving it disconnects and destroys nothing."""
    async with create_arctic_rl_client(over(owner, request.param)) as made:
        yield made
