"""Checkpoints on disk: names that stay inside the tenant's folder, and a list of only what is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradwire.server.domain.checkpoints import CheckpointStore
from gradwire.server.engines.training import CheckpointInfo
from gradwire.server.errors import AlreadyExists, InvalidArgument, NotFound
from tests.fake_engines import write_checkpoint


async def save(store: CheckpointStore, tenant: str, name: str, *, at: float = 0.0, job_id: int = 1) -> None:
    async with store.new(tenant, name) as path:
        path.mkdir()
        write_checkpoint(path, CheckpointInfo(name, str(path), 3, 2, 10, at))
        store.note_job(path, job_id, 1)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "/etc", ".hidden", "a\\b", "a b", "ü", "x" * 101, "a\n"]
)
def test_what_is_no_plain_name_is_refused(tmp_path: Path, name: str) -> None:
    store = CheckpointStore(tmp_path)
    for ask in (store.path, store.existing):
        with pytest.raises(InvalidArgument):
            ask("alice", name)


@pytest.mark.parametrize("name", ["a", "step-10", "A_b.c-1", "-x", "x" * 100])
async def test_plain_names_are_taken(tmp_path: Path, name: str) -> None:
    store = CheckpointStore(tmp_path)
    await save(store, "alice", name)
    assert store.existing("alice", name).name == name


@pytest.mark.parametrize("tenant", ["..", ".", "a/b", "../../etc", "ü", "\u4e2d"])
def test_no_tenants_name_leads_out_of_the_root(tmp_path: Path, tenant: str) -> None:
    path = CheckpointStore(tmp_path).path(tenant, "x")
    assert path.resolve().parent.parent == tmp_path.resolve()


def test_no_two_tenants_share_a_folder(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    tenants = ["a.b", "a%2eb", "a_b", "\u4e2d", "\u04e2d", "\x04e2d"]
    assert len({store.path(tenant, "x") for tenant in tenants}) == len(tenants)


async def test_a_taken_name_is_refused_also_while_it_is_being_written(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    async with store.new("alice", "a") as path:
        with pytest.raises(AlreadyExists):
            async with store.new("alice", "a"):
                pass
    async with store.new("alice", "a"):
        path.mkdir()  # the write before failed without leaving anything: the name was free again
    with pytest.raises(AlreadyExists):
        async with store.new("alice", "a"):
            pass
    async with store.new("bob", "a"):
        pass


async def test_the_list_has_the_newest_first_with_the_job_that_wrote_it(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    for name, at, job_id in (("b", 2.0, 1), ("c", 1.0, 2), ("a", 3.0, 1)):
        await save(store, "alice", name, at=at, job_id=job_id)
    await save(store, "bob", "other")
    assert [(info.name, job_id) for info, job_id in store.list("alice")] == [("a", 1), ("b", 1), ("c", 2)]


async def test_what_is_half_written_or_broken_is_not_listed(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    await save(store, "alice", "good")
    folder = store.path("alice", "good").parent
    for name, text in ((".good.partial-1", "{}"), ("empty", ""), ("torn", '{"step": 1'), ("odd", "[]")):
        (folder / name).mkdir()
        (folder / name / "checkpoint.json").write_text(text)
    (folder / "nothing").mkdir()
    assert [info.name for info, _ in store.list("alice")] == ["good"]


async def test_a_missing_checkpoint_names_those_there_are(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    await save(store, "alice", "a")
    with pytest.raises(NotFound, match="yours are: a"):
        store.existing("alice", "b")
    with pytest.raises(NotFound, match="yours are: none"):
        store.existing("bob", "a")
