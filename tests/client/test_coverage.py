"""Every RPC of every service has a wrapper, and every async method its sync twin."""

from __future__ import annotations

import contextlib
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest
from google.protobuf.message_factory import GetMessageClass

from gradwire.client import AsyncClient, Client
from gradwire.client._core.loop import shared_loop
from gradwire.client._core.rpc import RPCS
from gradwire.v1 import (
    admin_pb2,
    deployment_pb2,
    inference_pb2,
    job_pb2,
    rollout_pb2,
    sampling_pb2,
    session_pb2,
    training_pb2,
    weight_pb2,
)

FILES = (
    admin_pb2,
    deployment_pb2,
    inference_pb2,
    job_pb2,
    rollout_pb2,
    sampling_pb2,
    session_pb2,
    training_pb2,
    weight_pb2,
)
METHODS = {
    f"/{service.full_name}/{method.name}": method
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
SUB_CLIENTS = ("admin", "deployments", "inference", "jobs", "rollouts", "sampling", "sessions", "training", "weights")
BATCH = {"input_ids": np.array([[1, 2]])}
TENSORS = {"a": np.zeros(2, np.float32)}

CALLS: dict[str, Callable[[Client], object]] = {
    "AdminService/GetCapabilities": lambda c: c.admin.get_capabilities(),
    "AdminService/CreateToken": lambda c: c.admin.create_token("acme", ["admin"]),
    "AdminService/ListTokens": lambda c: c.admin.list_tokens(),
    "AdminService/RevokeToken": lambda c: c.admin.revoke_token("t1"),
    "DeploymentService/Deploy": lambda c: c.deployments.deploy_llm("a"),
    "DeploymentService/GetDeployment": lambda c: c.deployments.get(),
    "DeploymentService/ListDeployments": lambda c: c.deployments.list(),
    "DeploymentService/Undeploy": lambda c: c.deployments.undeploy("a"),
    "InferenceService/GetStatus": lambda c: c.inference.get_status(),
    "InferenceService/GetAction": lambda c: c.inference.get_action([1.0]),
    "InferenceService/GetActionStream": lambda c: c.inference.get_action([1.0], in_turn=True),
    "InferenceService/Predict": lambda c: c.inference.predict([1.0]),
    "InferenceService/GenerateReply": lambda c: c.inference.generate("hi"),
    "InferenceService/GenerateReplyStream": lambda c: c.inference.generate_stream("hi").result(),
    "JobService/CreateJobs": lambda c: c.jobs.create(training={}),
    "JobService/GetJob": lambda c: c.jobs.get(1),
    "JobService/ListJobs": lambda c: c.jobs.list(),
    "JobService/DestroyJob": lambda c: c.jobs.destroy(1),
    "JobService/Heartbeat": lambda c: c.jobs.heartbeat(1),
    "JobService/WatchJob": lambda c: list(c.jobs.watch(1)),
    "RolloutService/OpenRollouts": lambda c: c.rollouts.open_many([{"task_id": "t"}]),
    "RolloutService/GetRollout": lambda c: c.rollouts.get("r"),
    "RolloutService/WatchRollouts": lambda c: list(c.rollouts.watch("r")),
    "RolloutService/FinishRollout": lambda c: c.rollouts.finish("r", reward=1.0),
    "RolloutService/CollectRollouts": lambda c: c.rollouts.collect(),
    "RolloutService/CancelRollouts": lambda c: c.rollouts.cancel("r"),
    "RolloutService/DiscardRollouts": lambda c: c.rollouts.discard("r"),
    "SamplingService/Generate": lambda c: c.sampling.generate("hi"),
    "SamplingService/GenerateStream": lambda c: c.sampling.generate_stream("hi").result(),
    "SamplingService/LogProbs": lambda c: c.sampling.log_probs("hi"),
    "SamplingService/Sleep": lambda c: c.sampling.sleep(),
    "SamplingService/Wake": lambda c: c.sampling.wake(),
    "SamplingService/ResetPrefixCache": lambda c: c.sampling.reset_prefix_cache(),
    "SamplingService/Pause": lambda c: c.sampling.pause(),
    "SamplingService/Resume": lambda c: c.sampling.resume(),
    "SessionService/ListSessions": lambda c: c.sessions.list(),
    "SessionService/GetSession": lambda c: c.sessions.get("s"),
    "SessionService/DeleteSession": lambda c: c.sessions.delete("s"),
    "TrainingService/UploadBatch": lambda c: c.training.upload_batch(1, BATCH),
    "TrainingService/FwdBwd": lambda c: c.training.fwd_bwd(1, BATCH),
    "TrainingService/FwdNoGrad": lambda c: c.training.fwd_no_grad(1, BATCH),
    "TrainingService/Step": lambda c: c.training.step(1),
    "TrainingService/ZeroGrad": lambda c: c.training.zero_grad(1),
    "TrainingService/SaveCheckpoint": lambda c: c.training.save_checkpoint(1),
    "TrainingService/LoadCheckpoint": lambda c: c.training.load_checkpoint(1, "x"),
    "TrainingService/ListCheckpoints": lambda c: c.training.list_checkpoints(),
    "TrainingService/DeleteCheckpoint": lambda c: c.training.delete_checkpoint("x"),
    "TrainingService/SleepTraining": lambda c: c.training.sleep(1),
    "TrainingService/WakeTraining": lambda c: c.training.wake(1),
    "TrainingService/EmptyTrainingCache": lambda c: c.training.empty_cache(1),
    "WeightService/Sync": lambda c: c.weights.sync(1),
    "WeightService/BeginUpdate": lambda c: c.weights.begin_update(TENSORS, 1),
    "WeightService/TransferUpdate": lambda c: c.weights.transfer_update("u", TENSORS),
    "WeightService/CommitUpdate": lambda c: c.weights.commit_update("u"),
    "WeightService/AbortUpdate": lambda c: c.weights.abort_update("u"),
    "WeightService/UnloadAdapter": lambda c: c.weights.unload_adapter("a"),
    "WeightService/GetNorm": lambda c: c.weights.get_norm(),
    "WeightService/GetChecksums": lambda c: c.weights.get_checksums(),
    "WeightService/GetVersion": lambda c: c.weights.get_version(),
}


class Recorder(grpc.GenericRpcHandler):
    """Takes any call, keeps its request bytes, and answers an empty message (a stream: none)."""

    def __init__(self) -> None:
        self.requests: dict[str, list[bytes]] = {}

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """A stream of requests on one side serves for unary too: the wire is the same."""
        path = details.method
        seen = self.requests.setdefault(path, [])

        async def unary(requests: Any, _: Any) -> bytes:
            seen.extend([request async for request in requests])
            return b""

        async def stream(requests: Any, _: Any) -> Any:
            async for request in requests:
                seen.append(request)
                if method is not None and method.client_streaming:
                    return  # the client waits for an answer before it says more
            return
            yield b""

        method = METHODS.get(path)
        if method is not None and method.server_streaming:
            return grpc.stream_stream_rpc_method_handler(stream)
        return grpc.stream_unary_rpc_method_handler(unary)


def test_the_clients_know_every_rpc_and_its_types() -> None:
    assert set(RPCS) == set(METHODS)
    for path, rpc in RPCS.items():
        method = METHODS[path]
        assert rpc.request.DESCRIPTOR is method.input_type
        assert rpc.response.DESCRIPTOR is method.output_type
        assert rpc.streaming == method.server_streaming


def test_the_table_of_calls_is_complete() -> None:
    assert {"/gradwire.v1." + name for name in CALLS} == set(METHODS)


@pytest.mark.parametrize("name", CALLS)
def test_a_wrapper_sends_its_rpc(name: str) -> None:
    recorder = Recorder()

    async def start() -> tuple[grpc.aio.Server, int]:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((recorder,))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, port

    server, port = shared_loop().run(start())
    with Client(f"127.0.0.1:{port}", timeout=10) as client, contextlib.suppress(Exception):
        CALLS[name](client)  # an empty answer may be no result, which other tests look at
    shared_loop().run(server.stop(0))
    (path,) = recorder.requests
    assert path == "/gradwire.v1." + name
    assert recorder.requests[path]
    for request in recorder.requests[path]:
        GetMessageClass(METHODS[path].input_type).FromString(request)


def public(kind: type) -> dict[str, Any]:
    """Public methods and properties."""
    return {name: item for name, item in inspect.getmembers(kind) if not name.startswith("_")}


@pytest.mark.parametrize("name", SUB_CLIENTS)
def test_sync_and_async_have_the_same_signatures(name: str) -> None:
    plain, coroutine = (type(getattr(kind("localhost:1"), name)) for kind in (Client, AsyncClient))
    assert public(plain).keys() == public(coroutine).keys()
    for method, function in public(plain).items():
        theirs = inspect.signature(public(coroutine)[method])
        assert inspect.signature(function).parameters == theirs.parameters
        assert inspect.getdoc(function) == inspect.getdoc(public(coroutine)[method])


def test_both_clients_take_the_same_options() -> None:
    assert inspect.signature(Client).parameters == inspect.signature(AsyncClient).parameters
    assert inspect.getdoc(Client.__init__) == inspect.getdoc(AsyncClient.__init__)
    for method in ("health", "wait_ready", "close"):
        ours, theirs = getattr(Client, method), getattr(AsyncClient, method)
        assert inspect.signature(ours) == inspect.signature(theirs)
    shared_loop()  # Client() above started it: later tests expect it running


def test_the_sync_clients_are_fresh() -> None:
    pytest.importorskip("ruff")
    root = Path(__file__).parents[2]
    command = [sys.executable, str(root / "scripts" / "gen_sync_client.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}: run scripts/gen_sync_client.py"
