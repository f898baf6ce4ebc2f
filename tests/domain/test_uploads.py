"""Uploaded batches: whole or refused, bounded, forgotten, and only their sender's."""

from __future__ import annotations

import hashlib

import pytest

from gradwire.server.domain import uploads
from gradwire.server.domain.uploads import StoredBatch, UploadStore
from gradwire.server.errors import InvalidArgument, NotFound, ResourceExhausted
from tests.domain.support import ALICE, BOB

DATA = b"0123456789"
DIGEST = hashlib.sha256(DATA).digest()


def new_store(*, capacity: int = 100) -> UploadStore:
    return UploadStore(max_upload_bytes=50, capacity=capacity)


def upload(store: UploadStore, data: bytes = DATA) -> StoredBatch:
    digest = hashlib.sha256(data).digest()
    incoming = store.begin(len(data), digest)
    incoming.add(data[:4])
    incoming.add(data[4:])
    return store.keep(incoming.finish(), digest, 1, ALICE)


def test_what_was_sent_is_what_is_stored() -> None:
    store = new_store()
    batch = upload(store)
    assert store.get(batch.batch_id, 1, ALICE).data == DATA


def test_more_or_less_than_announced_is_refused() -> None:
    incoming = new_store().begin(len(DATA), DIGEST)
    incoming.add(DATA[:-1])
    with pytest.raises(InvalidArgument, match="announced 10 bytes, 9 came"):
        incoming.finish()
    with pytest.raises(InvalidArgument, match="more than the 10 bytes"):
        incoming.add(b"xy")


def test_another_checksum_is_refused() -> None:
    incoming = new_store().begin(len(DATA), bytes(32))
    incoming.add(DATA)
    with pytest.raises(InvalidArgument, match="sha256"):
        incoming.finish()


def test_one_upload_has_a_limit_that_waiting_does_not_change() -> None:
    with pytest.raises(InvalidArgument, match="at most 50"):
        new_store().begin(51, DIGEST)


def test_all_uploads_together_have_a_limit_and_the_error_says_when_to_retry() -> None:
    store = new_store(capacity=25)
    upload(store)
    store.begin(10, DIGEST)  # under way: counts, too
    with pytest.raises(ResourceExhausted) as caught:
        store.begin(10, DIGEST)
    assert caught.value.retry_after is not None
    assert 0 < caught.value.retry_after.total_seconds() <= uploads.LIFETIME_S
    store.release(10)
    store.begin(10, DIGEST)


def test_old_batches_are_forgotten_and_their_room_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "LIFETIME_S", -1.0)
    store = new_store(capacity=10)
    batch = upload(store)
    with pytest.raises(NotFound):
        store.get(batch.batch_id, 1, ALICE)
    upload(store)


def test_another_tenant_and_another_job_do_not_find_a_batch() -> None:
    store = new_store()
    batch = upload(store)
    for job_id, caller in ((1, BOB), (2, ALICE)):
        with pytest.raises(NotFound):
            store.get(batch.batch_id, job_id, caller)
