"""Beginnings and ends: reconnecting from elsewhere, two clients on one server, jobs that are gone, no orphans."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import ray

from gradwire.client import Client, InvalidArgumentError, NotFoundError
from gradwire.client.arctic import (
    ArcticRLClient,
    ArcticRLClientConfig,
    SyncArcticRLClient,
    create_arctic_rl_client,
)
from tests.arctic.conftest import CONFIG, PROTOCOLS, over
from tests.serving import descendants

ELSEWHERE = """
import sys
from gradwire.client.arctic import ArcticRLClientConfig, SyncArcticRLClient
with SyncArcticRLClient(ArcticRLClientConfig.model_validate_json(sys.argv[1])) as client:
    print(client.training_job_id, client.generate(["ab"], {"max_tokens": 3, "temperature": 0})[0]["token_ids"])
"""


async def greedy(client: ArcticRLClient) -> list[int]:
    tokens: list[int] = (await client.generate(["ab"], {"max_tokens": 3, "temperature": 0}))[0]["token_ids"]
    return tokens


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_another_process_reconnects_with_the_configuration_alone(owner: ArcticRLClient, protocol: str) -> None:
    text = over(owner, protocol).model_dump_json()
    run = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", ELSEWHERE, text], capture_output=True, text=True, timeout=120, check=True
    )
    assert run.stdout.strip() == f"{owner.training_job_id} {await greedy(owner)}"
    # Leaving a reconnected client destroys nothing.
    assert await greedy(owner)


async def test_a_ray_actor_reconnects_with_the_configuration(owner: ArcticRLClient) -> None:
    class Worker:
        def __init__(self, config: ArcticRLClientConfig) -> None:
            self.client = create_arctic_rl_client(config)

        async def tokens(self) -> tuple[int, list[int]]:
            results = await self.client.generate(["ab"], {"max_tokens": 3, "temperature": 0})
            return self.client.sampling_job_id, results[0]["token_ids"]

    config = owner.reconnect_config()
    assert (config.backend, config.comm_protocol) == ("local", "ray") and config.is_reconnect
    worker = ray.remote(num_cpus=0)(Worker).remote(config)
    assert await worker.tokens.remote() == (owner.sampling_job_id, await greedy(owner))
    ray.kill(worker)


async def test_without_a_name_the_only_server_is_found(owner: ArcticRLClient) -> None:
    config = ArcticRLClientConfig(comm_protocol="ray", model_name="tiny", sampling_job_id=owner.sampling_job_id)
    async with create_arctic_rl_client(config) as found:
        assert await greedy(found) == await greedy(owner)
    with pytest.raises(ValueError, match="no server 'gradwire-gone'"):
        create_arctic_rl_client(config.model_copy(update={"ray_server": "gradwire-gone"}))


@pytest.mark.filterwarnings("ignore::gradwire.client.arctic.ArcticRLWarning")
async def test_two_clients_on_one_server_do_not_disturb_each_other(owner: ArcticRLClient) -> None:
    config = ArcticRLClientConfig(
        comm_protocol="ray", **{**CONFIG, "training_gpus": 1, "sampling_gpus": 0, "log_prob_gpus": 0}
    )
    second = await asyncio.to_thread(create_arctic_rl_client, config, owner.get_server_state())
    assert second.training_job_id != owner.training_job_id
    before = (await owner.weight_norm())["training_norm"]
    context = {"advantages": [1.0, -1.0], "loss_mask": [[1, 1, 0], [1, 0]]}
    await second.fwd_bwd({"args": [[[1, 2, 3], [4, 5]]], "context": context})
    assert (await second.step(lr=0.1))["weight_version"] == 1
    assert (await owner.weight_norm())["training_norm"] == before
    await without_jobs(second)
    ids = second.reconnect_config()
    await second.shutdown()
    await second.shutdown()
    with pytest.raises(ValueError, match="no training job"):
        _ = second.training_job_id
    with pytest.raises(RuntimeError, match="closed"):
        second.reconnect_config()
    with pytest.raises(NotFoundError):
        create_arctic_rl_client(ids)
    assert await greedy(owner)


async def without_jobs(client: ArcticRLClient) -> None:
    """What a client says of kinds of jobs that it has none of."""
    assert await client.sleep_log_prob() == await client.wake_log_prob() == {"status": "no_log_prob_job"}
    for read in ("sampling_job_id", "log_prob_job_id"):
        with pytest.raises(ValueError, match=r"there is no (sampling|log_prob) job"):
            getattr(client, read)
    with pytest.raises(ValueError, match="no sampling job"):
        await client.generate(["x"])
    with pytest.raises(ValueError, match="no log_prob job"):
        await client.log_probs(prompts=["The capital of France is"], completions=["Paris"], top_k=1)
    with pytest.raises(ValueError, match="no log_prob job"):
        await client.fwd_no_grad({"args": [[[1, 2, 3]]]}, reference_model=True)


async def test_an_id_of_another_kind_is_refused(owner: ArcticRLClient) -> None:
    config = over(owner, "grpc").model_copy(update={"training_job_id": owner.sampling_job_id})
    with pytest.raises(ValueError, match="is a sampling job"):
        create_arctic_rl_client(config)


async def test_any_loop_and_any_thread(owner: ArcticRLClient) -> None:
    expected = await greedy(owner)
    with ThreadPoolExecutor(4) as pool:
        loops = [pool.submit(lambda: asyncio.run(greedy(owner))) for _ in range(4)]
        assert [loop.result() for loop in loops] == [expected] * 4
    task = asyncio.create_task(owner.generate(["x"], {"max_tokens": 1500, "ignore_eos": True}))
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await greedy(owner) == expected


def test_the_blocking_twin(owner: ArcticRLClient) -> None:
    with SyncArcticRLClient(over(owner, "grpc")) as client:
        whole = client.generate(["ab"], {"max_tokens": 3, "temperature": 0})[0]
        deltas = list(client.generate_stream("ab", {"max_tokens": 3, "temperature": 0}))
        assert [token for delta in deltas for token in delta["token_ids"]] == whole["token_ids"]
        assert client.weight_norm().keys() >= {"training_norm", "sampling_norm"}
        assert len(client.log_probs(["ab"], ["c"])["results"]) == 1


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_job_that_cannot_start_leaves_no_server(tmp_path: Path, protocol: str) -> None:
    before = set(descendants(os.getpid()))
    fields: dict[str, Any] = {"comm_protocol": protocol, "server_logs": False, "checkpoint_path": str(tmp_path)}
    config = ArcticRLClientConfig(model_name="no-such-model", training_gpus=1, **fields)
    with pytest.raises(InvalidArgumentError, match="no-such-model"):
        create_arctic_rl_client(config)
    assert not [line for line in started_since(before) if "gradwire.server" in line]


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.filterwarnings("ignore::gradwire.client.arctic.ArcticRLWarning")
async def test_a_server_of_ones_own_is_shared_and_ends_with_shutdown(tmp_path: Path, protocol: str) -> None:
    before = set(descendants(os.getpid()))
    fields: dict[str, Any] = {"comm_protocol": protocol, "server_logs": False, "checkpoint_path": str(tmp_path)}
    fields |= {"training_config": {"loss": "cross_entropy"}, "ds_worker_config": {"threads": 1}}
    config = ArcticRLClientConfig(model_name="tiny", training_gpus=1, **fields)
    owner = await asyncio.to_thread(create_arctic_rl_client, config)
    again = ArcticRLClientConfig.model_validate_json(owner.reconnect_config().model_dump_json())
    assert (again.backend, again.comm_protocol) == ("dss-platform", protocol)
    second = await asyncio.to_thread(create_arctic_rl_client, again)
    assert second.training_job_id == owner.training_job_id
    # Two clients of one job: what both send adds up, and the end of the job is the end for both.
    batch = {"args": [[[1, 2, 3, 4]]]}
    losses = await asyncio.gather(owner.fwd_bwd(batch), second.fwd_bwd(batch, processing=None))
    assert all(found["avg_loss"] > 1 for found in losses)  # the job's own loss; grpo's would be -1
    both = (await second.step(lr=0.0))["metrics"]["grad_norm"]
    await owner.fwd_bwd(batch)
    assert both == pytest.approx(2 * (await owner.step())["metrics"]["grad_norm"], rel=1e-5)
    await second.shutdown()
    with pytest.raises(NotFoundError):
        await owner.step()
    with pytest.raises(NotFoundError):
        create_arctic_rl_client(again)
    await owner.shutdown()
    with pytest.raises(ValueError, match="no training job"):
        _ = owner.training_job_id
    assert not [line for line in started_since(before) if "gradwire.server" in line]


def test_a_server_that_does_not_start_says_why() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = ArcticRLClientConfig(
            model_name="tiny", sampling_gpus=1, server_logs=False, port=taken.getsockname()[1]
        )
        with pytest.raises(RuntimeError, match=r"exit code 1\. Its last words:[\s\S]*cannot listen on 127\.0\.0\.1"):
            create_arctic_rl_client(config)
    config = ArcticRLClientConfig(model_name="tiny", sampling_gpus=1, server_logs=False, startup_timeout=0.1)
    with pytest.raises(TimeoutError, match="startup_timeout"):
        create_arctic_rl_client(config)


@pytest.mark.filterwarnings("ignore::gradwire.client.arctic.ArcticRLWarning")
def test_jobs_that_are_not_ready_in_time_are_no_ones(owner: ArcticRLClient) -> None:
    config = ArcticRLClientConfig(model_name="tiny", comm_protocol="ray", training_gpus=1, job_ready_timeout=1.0)
    with pytest.raises(TimeoutError, match=r"job_ready_timeout, 1\.0 s"):
        create_arctic_rl_client(config, owner.get_server_state())
    with Client(owner.get_server_state()["grpc"]) as client:
        mine = {owner.training_job_id, owner.sampling_job_id, owner.log_prob_job_id}
        assert {job.job_id for job in client.jobs.list()} == mine


def test_a_server_ends_with_its_owner_however_that_ends() -> None:
    program = "from gradwire.client.arctic.server import LocalServer; import time; s = LocalServer(logs=False); "
    owner = subprocess.Popen(
        [sys.executable, "-c", program + "print(s.pid, flush=True); time.sleep(600)"], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    server = int(owner.stdout.readline())
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{server}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{server}").exists()


def started_since(before: set[int]) -> list[str]:
    return [line for pid, line in descendants(os.getpid()).items() if pid not in before]
