"""Large arrays by shared memory, from the Python client to a whole server: equal answers, refusals, what is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grpc import StatusCode

from gradwire.client import ActionResult, AsyncClient, FailedPreconditionError, InvalidArgumentError
from gradwire.client._convert.shared import Lent
from gradwire.client._core.shared import Segment, SegmentPool
from gradwire.client.arena import Agent
from gradwire.v1 import inference_pb2, tensor_pb2
from tests.engines.policy.support import box, network, write
from tests.rpc.support import Served, failure, segments, serving

IMAGE = box(32, 32, 3, low=0, high=255, dtype="uint8")
CAMERA = {"type": "Dict", "spaces": {"left": IMAGE, "right": {"type": "Tuple", "spaces": [IMAGE, box(2)]}}}
STATES = {"h": {"shape": [1024], "initial": 0.5}}
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (100, 32, 32, 3), np.uint8)
CAMERAS = {"left": IMAGES, "right": (IMAGES[::-1], RNG.normal(size=(100, 2)).astype(np.float32))}


@asynccontextmanager
async def deployed(folder: Path, **settings: Any) -> AsyncIterator[Served]:
    """A server with three deployments, which leaves no segment."""
    before = segments()
    async with serving(folder, **settings) as served:
        bundles = {
            "image": network(IMAGE, "deterministic", box(2)),
            "camera": network(CAMERA, "deterministic", box(2), states=STATES),
            "model": network(IMAGE, None, None, outputs=["y"]),
        }
        async with AsyncClient(served.app.grpc_address) as client:
            for name, spec in bundles.items():
                write(served.app.settings.bundles / name, {"policy": spec})
                await client.deployments.deploy_policy(name, name)
        yield served
    assert segments() <= before


async def act(client: AsyncClient, name: str, observation: Any, **more: Any) -> ActionResult:
    return await client.inference.get_action(observation, batched=True, deployment_id=name, **more)


async def test_both_ways_give_the_same_answers(tmp_path: Path, reads: list[str]) -> None:
    async with (
        deployed(tmp_path) as served,
        AsyncClient(served.app.grpc_address) as client,
        AsyncClient(served.app.grpc_address, shared_memory=False) as plain,
    ):
        state = {"h": RNG.normal(size=(100, 1024)).astype(np.float32)}
        for name, value, more, count in (
            ("image", IMAGES, {}, 1),
            ("image", IMAGES[:3], {}, 0),  # small
            ("image", IMAGES[::-1, ::-1], {}, 1),  # not contiguous
            ("camera", CAMERAS, {"hidden_state": state}, 3),
        ):
            expected = await act(plain, name, value, **more)
            assert not reads
            found = await act(client, name, value, **more)
            assert len(reads) == count
            reads.clear()
            np.testing.assert_array_equal(found.action, expected.action)
        one, other = [
            (await each.inference.predict(IMAGES, batched=True, deployment_id="model")).outputs
            for each in (plain, client)
        ]
        np.testing.assert_array_equal(one, other)
        assert len(reads) == 1
        await act(client, "image", IMAGES)
        assert reads[0] == reads[1], "segments are used again"


async def test_the_array_may_be_changed_when_the_call_has_begun(tmp_path: Path, reads: list[str]) -> None:
    async with deployed(tmp_path) as served, AsyncClient(served.app.grpc_address) as client:
        calls = []
        for number in range(4):  # at once: each has a segment of its own
            images = np.full_like(IMAGES, number * 60)
            calls.append(asyncio.create_task(act(client, "image", images)))
            await asyncio.sleep(0)
            images[:] = 7
        found = [await call for call in calls]
        assert len(set(reads)) == 4
        for number, result in enumerate(found):
            expected = await act(client, "image", np.full_like(IMAGES, number * 60))
            np.testing.assert_array_equal(result.action, expected.action)


async def test_every_door_reads_them_but_not_for_others(tmp_path: Path, reads: list[str]) -> None:
    async with deployed(tmp_path, http="127.0.0.1:0") as served:
        for address in (served.app.grpc_address, f"http://{served.app.http_address}"):
            async with AsyncClient(address) as near:
                found = await act(near, "image", IMAGES)
                assert len(reads) == 1 and not near._connection.segments.off
            for name in ("forwarded", "via", "x-forwarded-for", "x-real-ip"):
                async with AsyncClient(address, metadata={name: "192.0.2.1"}) as far:
                    same = await act(far, "image", IMAGES)
                np.testing.assert_array_equal(found.action, same.action)
                assert len(reads) == 1 and far._connection.segments.off, (address, name)
            reads.clear()


@pytest.mark.parametrize("why", ["turned off", "other host"])
async def test_a_server_that_reads_no_segments_gets_the_bytes(
    tmp_path: Path, reads: list[str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    moved: list[Path] = []
    borrow = SegmentPool.borrow

    def borrowing(pool: SegmentPool, size: int) -> Segment | None:
        segment = borrow(pool, size)
        asked.append(size)
        if why == "other host" and segment is not None:
            path = Path("/dev/shm", segment.name)
            moved.append(path.rename(f"{path}-elsewhere"))  # out of the server's sight
        return segment

    async with (
        deployed(tmp_path, shared_memory=why != "turned off") as served,
        AsyncClient(served.app.grpc_address) as client,
        AsyncClient(served.app.grpc_address, shared_memory=False) as plain,
    ):
        expected = await act(plain, "camera", CAMERAS)
        monkeypatch.setattr(SegmentPool, "borrow", borrowing)
        for _ in range(2):
            found = await act(client, "camera", CAMERAS)
            np.testing.assert_array_equal(found.action, expected.action)
        assert len(asked) == 2, "two arrays, once"
        assert len(reads) == (1 if why == "other host" else 0)
        with Agent(f"grpc://{served.app.grpc_address}/image", probe_on_init=False) as agent:
            await asyncio.to_thread(agent.status)
            for _ in range(2):
                actions, _ = await asyncio.to_thread(agent.get_action, IMAGES, batched=True)
                np.testing.assert_array_equal(actions, (await act(plain, "image", IMAGES)).action)
        assert len(asked) == 3
        for path in moved:
            path.unlink(missing_ok=True)


async def test_a_segment_of_a_call_that_fails_is_not_used_again(tmp_path: Path, reads: list[str]) -> None:
    async with deployed(tmp_path) as served, AsyncClient(served.app.grpc_address) as client:
        await act(client, "image", IMAGES)
        with pytest.raises(InvalidArgumentError):
            await act(client, "image", IMAGES[:, :30])
        assert reads[1] == reads[0] and reads[1] not in segments()
        await act(client, "image", IMAGES)
        call = asyncio.create_task(act(client, "image", IMAGES))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        with pytest.raises(TypeError, match="action_mask"):
            await client.inference.get_action(IMAGES, hidden_state={"h": IMAGES}, action_mask=np.array(["x"]))
        assert not client._connection.segments._all


async def test_a_caller_elsewhere_may_not_name_segments(tmp_path: Path) -> None:
    """What one is told whose peer address is not this host's."""
    async with deployed(tmp_path) as served, AsyncClient(served.app.grpc_address) as client:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("gradwire.server.rpc.interceptors.auth.is_same_host", lambda peer: False)
            patch.setattr(Lent, "take_back", lambda self: self.__exit__(None, None, None))
            with pytest.raises(FailedPreconditionError, match="from this caller") as caught:
                await act(client, "image", IMAGES)
        assert caught.value.reason == "SHARED_MEMORY_UNAVAILABLE"


async def test_the_plain_agent_in_threads(tmp_path: Path, reads: list[str]) -> None:
    async with deployed(tmp_path) as served:

        def work() -> None:
            with (
                Agent(f"grpc://{served.app.grpc_address}/image") as agent,
                Agent(f"grpc://{served.app.grpc_address}/image", shared_memory=False) as plain,
                ThreadPoolExecutor(4) as threads,
            ):
                batches = [np.roll(IMAGES, number, axis=0) for number in range(12)]
                found = list(threads.map(lambda images: agent.get_action(images, batched=True)[0], batches))
                assert 1 <= len(set(reads)) <= 4 and len(reads) == 12
                for images, actions in zip(batches, found, strict=True):
                    np.testing.assert_array_equal(actions, plain.get_action(images, batched=True)[0])
                assert len(reads) == 12

        await asyncio.to_thread(work)


async def test_a_request_names_no_more_memory_than_a_message_holds(tmp_path: Path) -> None:
    async with deployed(tmp_path, limits={"max_message_bytes": 1 << 20}) as served:
        tensor = tensor_pb2.Tensor(dtype=tensor_pb2.DATA_TYPE_UINT8, shape=[2 << 20])
        tensor.shared_memory.CopyFrom(tensor_pb2.SharedMemory(name="gradwire-x", length=2 << 20))
        request = inference_pb2.GetActionRequest(deployment_id="image", observation={"tensor": tensor})
        failed = await failure(served.inference.GetAction(request))
        assert (failed.code, failed.reason) == (StatusCode.RESOURCE_EXHAUSTED, "SHARED_MEMORY_TOO_LARGE")
