"""Training batches by shared memory, from the Python client to a whole server on a fake trainer."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwire.client import AlreadyExistsError, AsyncClient
from gradwire.client._core.shared import Segment
from tests.rpc.support import segments, serving

RNG = np.random.default_rng(0)
IDS = RNG.integers(0, 100, (300, 512)).astype(np.int32)
COLUMNS = {
    "input_ids": IDS,
    "attention_mask": np.ones_like(IDS),
    "loss_mask": np.roll(np.eye(1, 512, dtype=np.float32), 5).repeat(300, axis=0),
    "advantages": RNG.normal(size=300).astype(np.float32),
    "prompt_group_ids": np.arange(300),
}


async def test_a_batch_is_the_same_payload_whichever_way_it_comes(tmp_path: Path, reads: list[str]) -> None:
    async with (
        serving(tmp_path) as served,
        AsyncClient(served.app.grpc_address) as client,
        AsyncClient(served.app.grpc_address, shared_memory=False) as plain,
    ):
        job = await served.training_job()
        whole: dict[str, Any] = {"return_outputs": True, "request_id": "once"}
        first = await client.training.fwd_bwd(job, COLUMNS, **whole)
        assert len(reads) == 4
        np.testing.assert_array_equal(first.log_probs_shifted, IDS)
        again = await client.training.fwd_bwd(job, COLUMNS, **whole)
        assert again.log_probs_shifted is not None
        by_bytes = await plain.training.fwd_bwd(job, COLUMNS, **whole)
        uploaded = await plain.training.upload_batch(job, COLUMNS)
        for result in (again, by_bytes, await client.training.fwd_bwd(job, uploaded, **whole)):
            assert (result.loss, result.num_loss_tokens) == (first.loss, first.num_loss_tokens)
        assert served.engines.trainers[0].applied == ["fwd_bwd"]
        # In the segments of the call before there is something else now.
        names = set(reads)
        with pytest.raises(AlreadyExistsError):
            await client.training.fwd_bwd(job, COLUMNS | {"input_ids": IDS[::-1]}, **whole)
        assert names >= set(reads)
        assert served.engines.trainers[0].applied == ["fwd_bwd"]


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_batch_beyond_a_message_goes_by_shared_memory_or_is_uploaded(
    tmp_path: Path, reads: list[str], allowed: bool
) -> None:
    async with (
        serving(tmp_path, limits={"max_message_bytes": 1 << 20}, shared_memory=allowed) as served,
        AsyncClient(served.app.grpc_address) as client,
    ):
        job = await served.training_job()
        for _ in range(2):
            found = await client.training.fwd_no_grad(job, COLUMNS)
            np.testing.assert_array_equal(found.log_probs_shifted, IDS)
        rows = [row[: 100 + number] for number, row in enumerate(IDS)]  # ragged: no shared memory for them
        ragged = await client.training.fwd_no_grad(job, {"input_ids": rows})
        np.testing.assert_array_equal(ragged.log_probs_shifted[7], rows[7])
        assert len(reads) == (8 if allowed else 0)
        assert client._connection.segments.off is not allowed


async def test_a_batch_that_finds_no_room_is_uploaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradwire.client._core.shared._MOST_SEGMENTS", 1)
    async with (
        serving(tmp_path, limits={"max_message_bytes": 1 << 20}) as served,
        AsyncClient(served.app.grpc_address) as client,
    ):
        job = await served.training_job()
        result = await client.training.fwd_bwd(job, COLUMNS, return_outputs=True)
        np.testing.assert_array_equal(result.log_probs_shifted, IDS)
        assert not client._connection.segments.off


async def test_a_call_that_is_cancelled_while_it_is_encoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding goes on in its thread: it writes to no file that is not its own, and leaves nothing."""
    before = segments()
    writing, go_on, done = threading.Event(), threading.Event(), threading.Event()
    write = Segment.write

    def slowly(segment: Segment, data: memoryview) -> None:
        writing.set()
        go_on.wait(10)
        try:
            write(segment, data)
        finally:
            done.set()

    large = {"input_ids": np.ones((3000, 512), np.int32), "loss_mask": np.ones((3000, 512), np.float32)}
    async with serving(tmp_path) as served, AsyncClient(served.app.grpc_address) as client:
        job = await served.training_job()
        monkeypatch.setattr(Segment, "write", slowly)
        call = asyncio.create_task(client.training.fwd_no_grad(job, large))
        await asyncio.to_thread(writing.wait)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert segments() == before
        go_on.set()
        await asyncio.to_thread(done.wait)
        assert segments() == before and not client._connection.segments._all
