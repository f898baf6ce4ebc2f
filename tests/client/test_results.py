"""What callers get back: typed, with units in the names, and pages already put together."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from gradwire.client import AsyncClient, FinishReason, Health, WeightTransport
from gradwire.client._core.health import decode_check, encode_check
from tests.client.fake import Fake
from tests.client.waiting import until
from tests.client.wire import failure


async def test_completions(client: AsyncClient) -> None:
    result = await client.sampling.generate(["a", "b"], log_probs=2)
    assert len(result) == 2
    assert [completion.text for completion in result.completions] == ["hello", "hello"]
    completion = result[1].completions[0]
    assert completion.token_ids.dtype == np.int32
    assert completion.log_probs is not None
    assert completion.log_probs.dtype == np.float32
    assert completion.top_log_probs is not None
    assert completion.top_log_probs.token_ids.tolist() == [[1, 2], [3, 4], [5, -1]]
    assert completion.finish_reason is FinishReason.STOP
    assert str(completion.finish_reason) == "stop"
    assert completion.stop_reason == 7
    assert completion.weight_version == 3
    assert result.params.log_probs == 2
    with pytest.raises(ValueError, match="2 completions"):
        _ = result.text
    assert (await client.sampling.generate("a")).completions[0].log_probs is None


async def test_scores(client: AsyncClient) -> None:
    (score,) = await client.sampling.log_probs("a", " b c")
    assert score.completion_log_probs.tolist() == [-0.5, -0.25]
    assert score.completion_token_ids.tolist() == [8, 9]
    assert score.weight_version == 4


async def test_durations_are_seconds_and_sizes_bytes(client: AsyncClient) -> None:
    sync = await client.weights.sync(1, transport="file")
    assert (sync.pause_s, sync.total_s, sync.transport) == (0.25, 0.25, WeightTransport.FILE)
    assert (await client.sampling.sleep()).freed_bytes == 60


async def test_all_pages_are_fetched(fake: Fake, client: AsyncClient) -> None:
    tokens = await client.admin.list_tokens()
    assert [token.token_id for token in tokens] == ["t0", "t1"]
    assert len(fake.requests["ListTokens"]) == 2


async def test_a_new_tokens_secret_is_not_in_its_repr(client: AsyncClient) -> None:
    created = await client.admin.create_token("acme", ["training"], lifetime_s=60)
    assert created.secret == "gw-secret"
    assert "gw-secret" not in repr(created)


async def test_created_jobs_by_kind(client: AsyncClient) -> None:
    jobs = await client.jobs.create(training={"model": "tiny"})
    assert jobs.training.job_id == 7
    with pytest.raises(LookupError, match="pass sampling="):
        _ = jobs.sampling


async def test_leases_are_kept_until_the_job_is_destroyed(fake: Fake, client: AsyncClient) -> None:
    (job,) = await client.jobs.create(training={}, lease_s=0.15)
    fake.failures["Heartbeat"] = [failure("INTERNAL", "once")]
    await until(lambda: len(fake.requests["Heartbeat"]) >= 4)
    assert list(fake.requests["Heartbeat"][0].job_ids) == [7]
    await client.jobs.destroy(job)
    count = len(fake.requests["Heartbeat"])
    await asyncio.sleep(0.2)
    assert len(fake.requests["Heartbeat"]) == count


async def test_no_heartbeats_for_a_job_that_is_gone(
    fake: Fake, client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await client.jobs.create(training={}, lease_s=0.15)
    fake.failures["Heartbeat"] = [failure("NOT_FOUND", "no job 7")]
    await until(lambda: "job 7 is gone" in caplog.text)
    await asyncio.sleep(0.2)
    assert len(fake.requests["Heartbeat"]) == 1


async def test_closing_ends_the_heartbeats(fake: Fake) -> None:
    async with AsyncClient(fake.address) as client:
        await client.jobs.create(training={}, lease_s=0.15)
        await until(lambda: fake.requests["Heartbeat"])
    count = len(fake.requests["Heartbeat"])
    await asyncio.sleep(0.2)
    assert len(fake.requests["Heartbeat"]) == count


async def test_an_update_of_weights_in_one_go(fake: Fake, client: AsyncClient) -> None:
    tensors = {
        "a": np.arange(600_000, dtype=np.float32).reshape(2, -1),
        "b": np.float16(1),
        "c": np.zeros(0, np.float32),
    }
    result = await client.weights.update(tensors, 9)
    assert (result.weight_version, result.pause_s) == (9, 0.5)
    assert [list(spec.shape) for spec in fake.requests["BeginUpdate"][0].manifest] == [[2, 300_000], [], [0]]
    assert max(len(piece.data) for piece in fake.requests["TransferUpdate"]) == 1024 * 1024
    assert not fake.requests["AbortUpdate"]


async def test_a_failed_update_is_aborted(fake: Fake, client: AsyncClient) -> None:
    fake.failures["CommitUpdate"] = [failure("FAILED_PRECONDITION", "too old")]
    with pytest.raises(Exception, match="too old"):
        await client.weights.update({"a": np.zeros(2, np.float32)}, 9)
    assert fake.requests["AbortUpdate"][0].update_id == "u1"


@pytest.mark.parametrize("service", ["", "gradwire.v1.SamplingService", "x" * 300])
def test_health_messages_are_those_of_the_protocol(service: str) -> None:
    health_pb2 = pytest.importorskip("grpc_health.v1.health_pb2")
    assert encode_check(service) == health_pb2.HealthCheckRequest(service=service).SerializeToString()
    for number, word in enumerate(["unknown", "serving", "not_serving", "service_unknown"]):
        answer = health_pb2.HealthCheckResponse(status=number).SerializeToString()
        assert decode_check(answer) is Health(word)
    assert decode_check(b"\x08\x63") is Health.UNKNOWN


async def test_health_and_waiting_for_it(client: AsyncClient, fake: Fake) -> None:
    aio = pytest.importorskip("grpc_health.v1.health")
    health_pb2_grpc = pytest.importorskip("grpc_health.v1.health_pb2_grpc")
    health_pb2 = pytest.importorskip("grpc_health.v1.health_pb2")
    import grpc.aio

    servicer = aio.aio.HealthServicer()
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await servicer.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    async with AsyncClient(f"127.0.0.1:{port}") as asking:
        with pytest.raises(TimeoutError, match=r"not ready after 0\.5 s"):
            await asking.wait_ready(0.5)
        await server.start()
        assert await asking.health() is Health.NOT_SERVING
        assert await asking.health("nobody") is Health.SERVICE_UNKNOWN
        waiting = asyncio.create_task(asking.wait_ready(10))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
        await waiting
    await server.stop(0)


async def test_an_async_client_belongs_to_one_loop(client: AsyncClient) -> None:
    await client.sampling.generate("hi")

    def elsewhere() -> None:
        asyncio.run(client.jobs.list())

    with pytest.raises(RuntimeError, match="one AsyncClient for each loop"):
        await asyncio.to_thread(elsewhere)
