"""Shared-memory segments: life, sharing, names, and what a killed owner leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gradwire.server.engines import sharedmem
from gradwire.server.engines.sharedmem import SharedSegment
from gradwire.server.errors import FailedPrecondition, InvalidArgument, ResourceExhausted


def exists(name: str) -> bool:
    return Path("/dev/shm", name).exists()


def test_bytes_written_by_one_are_read_by_the_other() -> None:
    with SharedSegment.create(100, label="test") as owner, SharedSegment.attach(owner.name) as reader:
        owner.array(10, 3)[:] = [1, 2, 3]
        assert reader.array(9, 5).tolist() == [0, 1, 2, 3, 0]
        assert reader.size == 100
        with pytest.raises(ValueError, match="read-only"):
            reader.array()[0] = 1
        owner.unlink()
        owner.unlink()
        assert not exists(owner.name)


def test_views_outlive_close() -> None:
    segment = SharedSegment.create(8)
    view = segment.array()
    segment.close()
    segment.close()
    segment.unlink()
    view[:] = 7
    assert view.sum() == 56


def test_attaching_process_does_not_remove_the_segment() -> None:
    with SharedSegment.create(8) as segment:
        code = (
            "import sys; from gradwire.server.engines.sharedmem import SharedSegment as S\n"
            "s = S.attach(sys.argv[1], writable=True); s.array()[:] = 5"
        )
        done = subprocess.run([sys.executable, "-c", code, segment.name], capture_output=True, text=True, check=True)
        assert done.stderr == ""
        assert exists(segment.name) and segment.array().tolist() == [5] * 8
        segment.unlink()


def test_sweep_takes_what_a_dead_process_left_and_nothing_else() -> None:
    code = (
        "import os; from gradwire.server.engines.sharedmem import SharedSegment as S\n"
        "print(S.create(8).name, flush=True); os.kill(os.getpid(), 9)"
    )
    left = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
    assert exists(left)
    with SharedSegment.create(8) as used:
        assert left in sharedmem.sweep()
        assert exists(used.name) and not exists(left)
        used.unlink()


def test_sweep_passes_over_what_others_put_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradwire.server.engines.sharedmem._SHM_FOLDER", tmp_path)
    for name in ("gradwire-", "gradwire-a b", "gradwire-" + "x" * 201, "gradwire-not-to-be-removed"):
        (tmp_path / name).touch()
    (tmp_path / "gradwire-folder").mkdir()
    (tmp_path / "gradwire-link").symlink_to("/dev/null")
    unlinked: list[str] = []

    def refused(name: str) -> None:
        unlinked.append(name)
        raise PermissionError("the folder is sticky")

    monkeypatch.setattr("gradwire.server.engines.sharedmem.unlink", refused)
    assert sharedmem.sweep() == []
    assert unlinked == ["gradwire-not-to-be-removed"]


@pytest.mark.parametrize("name", ["", "gradwire-", "other", "gradwire-../etc", "/gradwire-a", "gradwire-a\0"])
def test_names_that_are_not_ours(name: str) -> None:
    with pytest.raises(InvalidArgument, match="segment"):
        SharedSegment.attach(name)


def test_missing_segment_and_bad_range() -> None:
    with pytest.raises(InvalidArgument, match="no shared-memory segment"):
        SharedSegment.attach("gradwire-missing")
    with SharedSegment.create(8) as segment:
        for offset, nbytes in [(-1, 2), (7, 2), (9, None), (0, 1 << 70)]:
            with pytest.raises(InvalidArgument, match="outside"):
                segment.array(offset, nbytes)
        segment.unlink()


def test_a_caller_s_segment_is_read() -> None:
    with SharedSegment.create(8) as segment:
        segment.array()[:] = range(8)
        into = np.empty(3, np.uint8)
        sharedmem.read_segment(segment.name, 2, into)
        assert into.tolist() == [2, 3, 4]
        segment.unlink()


def test_a_segment_that_shrinks_while_it_is_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with SharedSegment.create(1 << 20) as segment:
        whole = os.fstat

        def shrink(fd: int) -> os.stat_result:
            found = whole(fd)  # what the reader goes by, and then it is no longer so
            os.truncate(f"/dev/shm/{segment.name}", 100_000)
            return found

        monkeypatch.setattr("gradwire.server.engines.sharedmem.os.fstat", shrink)
        with pytest.raises(InvalidArgument, match="shortened while it was read"):
            sharedmem.read_segment(segment.name, 0, np.empty(1 << 20, np.uint8))
        monkeypatch.undo()
        segment.unlink()


def test_what_the_server_must_not_read() -> None:
    into = np.empty(4, np.uint8)

    def reason(name: str) -> str:
        with pytest.raises(FailedPrecondition) as caught:
            sharedmem.read_segment(name, 0, into)
        assert caught.value.reason == "SHARED_MEMORY_UNAVAILABLE"
        return caught.value.message

    assert "No such file" in reason("gradwire-missing")
    with pytest.raises(InvalidArgument, match="is not a segment's name"):
        sharedmem.read_segment("other", 0, into)
    odd = Path(f"/dev/shm/gradwire-test-{os.getpid()}")
    os.mkfifo(odd)
    assert "is no segment" in reason(odd.name)  # and nobody waits for a writer
    odd.unlink()
    odd.symlink_to("/etc/passwd")
    assert "cannot open" in reason(odd.name)
    odd.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's segment, and open it")
def test_another_user_s_segment_is_not_read() -> None:
    with SharedSegment.create(8) as segment:
        os.chown(f"/dev/shm/{segment.name}", 65534, 65534)
        with pytest.raises(FailedPrecondition, match="belongs to another user"):
            sharedmem.read_segment(segment.name, 0, np.empty(4, np.uint8))
        segment.unlink()


def test_no_room_is_an_error_not_a_sigbus() -> None:
    with pytest.raises(ResourceExhausted, match="/dev/shm"):
        SharedSegment.create(1 << 50)
