"""The client's shared-memory segments: who has one, how many there are, and what is left of them. Linux only."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradwire.client._core import shared
from gradwire.client._core.shared import Segment, SegmentPool

MIB = 1 << 20
SCRIPT = """
import os, signal, sys
from gradwire.client._core.shared import SegmentPool
pool = SegmentPool(True)
segment = pool.borrow(1000)
print(segment.name, flush=True)
"""


@pytest.fixture
def pool() -> Iterator[SegmentPool]:
    """A pool, which leaves nothing."""
    made = SegmentPool(True)
    yield made
    made.close()
    assert not made._all and not made._used and not made._count


def exists(name: str) -> bool:
    return Path("/dev/shm", name).exists()


def borrow(pool: SegmentPool, size: int) -> Segment:
    segment = pool.borrow(size)
    assert segment is not None
    return segment


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", SCRIPT + code], capture_output=True, text=True).stdout.split()[0]


def test_a_segment_holds_what_was_written_and_is_this_user_s(pool: SegmentPool) -> None:
    segment = borrow(pool, 3 * MIB + 1)
    data = os.urandom(3 * MIB + 1)
    segment.write(memoryview(data))
    assert segment.read(len(data)) == data and segment.capacity == 4 * MIB
    assert Path("/dev/shm", segment.name).stat().st_mode & 0o777 == 0o600
    os.truncate(f"/dev/shm/{segment.name}", 5)
    with pytest.raises(OSError, match="shortened"):
        segment.read(6)
    pool.drop(segment)


def test_a_segment_is_one_call_s_at_a_time_and_then_the_next_one_s(pool: SegmentPool) -> None:
    first, second = borrow(pool, MIB), borrow(pool, MIB)
    assert first.name != second.name
    pool.give_back(first)
    assert borrow(pool, MIB - 5) is first
    pool.drop(first)
    assert not exists(first.name)
    pool.give_back(second)
    assert borrow(pool, 10 * MIB) is not second, "it is too small"
    assert borrow(pool, MIB) is second
    pool.drop(second)
    (left,) = pool._all.values()
    pool.give_back(left)
    other = borrow(pool, MIB)
    assert other is not left, "ten times as much as is needed"
    pool.drop(other)


def test_there_are_only_so_many(pool: SegmentPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_MOST_BYTES", 8 * MIB)
    monkeypatch.setattr(shared, "_IDLE_SEGMENTS", 2)
    lent = [borrow(pool, 2 * MIB) for _ in range(4)]
    assert pool.borrow(1) is None
    for segment in lent:
        pool.give_back(segment)
    assert [exists(segment.name) for segment in lent] == [False, False, True, True]
    large = borrow(pool, 8 * MIB)  # what is idle makes room
    assert not any(exists(segment.name) for segment in lent)
    pool.drop(large)
    monkeypatch.setattr(shared, "_MOST_BYTES", 1 << 60)
    assert pool.borrow(1 << 50) is None, "/dev/shm has not that much"
    assert not pool._used


def test_threads_never_share_one(pool: SegmentPool) -> None:
    wrong = []

    def work(byte: int) -> None:
        data = bytes([byte]) * 1000
        for _ in range(50):
            segment = borrow(pool, 1000)
            segment.write(memoryview(data))
            if segment.read(1000) != data:
                wrong.append(byte)
            pool.give_back(segment)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(pool._all) <= 8


def test_nothing_is_left_by_close_nor_by_garbage_collection() -> None:
    pool = SegmentPool(True)
    idle, lent = borrow(pool, 1), borrow(pool, 1)
    pool.give_back(idle)
    pool.close()
    pool.close()
    assert pool.off and not exists(idle.name) and pool.borrow(1) is None
    pool.give_back(lent)
    assert not exists(lent.name)
    other = SegmentPool(True)
    segment = borrow(other, 1)
    other.give_back(segment)
    del other
    gc.collect()
    assert not exists(segment.name)
    with pytest.raises(OSError, match="Bad file descriptor"):
        segment.close()  # it is closed


def test_a_process_that_ends_leaves_nothing() -> None:
    assert not exists(run(""))


def test_a_forked_child_leaves_the_parent_s_alone() -> None:
    code = """
if os.fork() == 0:
    assert pool.off and pool.borrow(1) is None
    sys.exit(0)
assert os.wait()[1] == 0
print(os.path.exists("/dev/shm/" + segment.name))
"""
    found = subprocess.run([sys.executable, "-c", SCRIPT + code], capture_output=True, text=True)
    assert found.stdout.split()[1:] == ["True"], found.stderr
    assert not exists(found.stdout.split()[0])


def test_what_a_killed_process_left_goes_with_the_next_client_or_server(pool: SegmentPool) -> None:
    from gradwire.server.engines import sharedmem

    mine = borrow(pool, 1)
    kill = f"os.kill(os.getpid(), {int(signal.SIGKILL)})"
    left = run(kill)
    assert exists(left)
    assert not exists(run("")) and not exists(left)
    left = run(kill)
    assert left in sharedmem.sweep() and not exists(left)
    assert exists(mine.name)
    pool.drop(mine)


def test_it_can_be_turned_off_and_needs_a_place() -> None:
    assert SegmentPool(False).off
    pool = SegmentPool(False)
    assert pool.borrow(1) is None
