"""Deleted checkpoints: gone by name at once, never while they are needed, and what a crash left goes too."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from gradwire.server.domain import checkpoints, deleting
from gradwire.server.domain.checkpoints import CheckpointStore
from gradwire.server.errors import FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted
from tests.domain.test_checkpoints import save


async def test_a_deleted_checkpoint_is_gone_and_its_name_is_free(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    await save(store, "alice", "a")
    await save(store, "bob", "a")
    (store.path("alice", "a") / "big").write_bytes(bytes(1000))
    size = sum(file.stat().st_size for file in store.path("alice", "a").iterdir())
    assert await store.delete("alice", "a", []) == size > 1000
    assert await store.delete("alice", "a", []) is None
    assert list(store.path("alice", "a").parent.iterdir()) == []
    assert store.existing("bob", "a")
    await save(store, "alice", "a")


@pytest.mark.parametrize("name", ["", "..", "../bob", ".a.partial-1", ".~a", "a/checkpoint.json"])
async def test_only_a_plain_name_is_deleted(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgument):
        await CheckpointStore(tmp_path).delete("alice", name, [])


async def test_a_damaged_checkpoint_can_be_deleted(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    await save(store, "alice", "a")
    (store.path("alice", "a") / "checkpoint.json").unlink()
    assert await store.delete("alice", "a", []) is not None


async def test_what_is_loaded_or_saved_stays(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    async with store.new("alice", "a"):
        with pytest.raises(FailedPrecondition, match="being saved"):
            await store.delete("alice", "a", [])
    await save(store, "alice", "a")
    with store.held("alice", "a"), pytest.raises(FailedPrecondition, match="being loaded"):
        await store.delete("alice", "a", [])
    assert await store.delete("alice", "a", []) is not None


async def test_it_is_gone_by_name_before_the_first_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, may_remove, remove = CheckpointStore(tmp_path), threading.Event(), deleting.remove

    def late(aside: Path) -> int:
        assert may_remove.wait(10)
        return remove(aside)

    monkeypatch.setattr(checkpoints, "remove", late)
    await save(store, "alice", "a")
    going = asyncio.ensure_future(store.delete("alice", "a", []))
    await asyncio.sleep(0)
    with pytest.raises(NotFound):
        store.existing("alice", "a")
    assert store.list("alice") == []
    may_remove.set()
    assert await going


async def test_what_a_killed_server_was_deleting_goes_with_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(tmp_path)
    await save(store, "alice", "a")
    monkeypatch.setattr(checkpoints, "remove", lambda _: 0)  # as if it were killed after the rename
    await store.delete("alice", "a", [])
    folder = store.path("alice", "a").parent
    assert len(list(folder.iterdir())) == 1 and store.list("alice") == []
    await save(store, "alice", "b")
    assert [path.name for path in folder.iterdir()] == ["b"]


async def test_an_operators_link_goes_and_what_it_points_at_stays(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "root")
    await save(store, "alice", "a")
    kept = store.path("alice", "a").rename(tmp_path / "kept")
    store.path("alice", "a").symlink_to(kept)
    assert await store.delete("alice", "a", []) is not None
    assert (kept / "checkpoint.json").is_file() and not store.path("alice", "a").is_symlink()


async def test_a_disk_that_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    store = CheckpointStore(tmp_path)
    await save(store, "alice", "a")
    monkeypatch.setattr(checkpoints, "set_aside", refuse)
    with pytest.raises(ResourceExhausted, match=r"cannot delete the checkpoint a: .*Permission denied"):
        await store.delete("alice", "a", [])
    assert store.existing("alice", "a")
