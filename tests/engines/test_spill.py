"""Bytes put aside on disk: they come back, and a folder that cannot take them is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gradwire.server.engines import spill
from gradwire.server.engines.spill import SPILL_FOLDER, SpillFile
from gradwire.server.errors import ResourceExhausted


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(SPILL_FOLDER, str(tmp_path))
    return tmp_path


def test_bytes_come_back_and_no_file_has_a_name(folder: Path) -> None:
    parts = [os.urandom(100_000), b"", os.urandom(3)]
    with SpillFile(sum(map(len, parts))) as file:
        for part in parts:
            file.write(memoryview(part))
        file.finish()
        assert not list(folder.iterdir())
        for part in parts:
            buffer = bytearray(len(part))
            file.read_into(memoryview(buffer))
            assert buffer == part
        with pytest.raises(OSError, match="too short"):
            file.read_into(memoryview(bytearray(1)))


def test_a_missing_folder_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SPILL_FOLDER, str(folder / "gone"))
    with pytest.raises(ResourceExhausted, match=rf"5 bytes aside in the folder {folder}/gone: No such file"):
        SpillFile(5)


def test_a_folder_in_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    shm = Path("/dev/shm")
    if not spill.in_memory(shm):
        pytest.skip("this system keeps /dev/shm elsewhere")
    monkeypatch.setenv(SPILL_FOLDER, str(shm))
    with pytest.raises(ResourceExhausted, match="lies in memory"):
        SpillFile(5)


def test_more_than_the_disk_has_is_refused_before_anything_is_written(folder: Path) -> None:
    free = os.statvfs(folder)
    with pytest.raises(ResourceExhausted, match="bytes aside in the folder"):
        SpillFile(free.f_frsize * free.f_blocks * 2)
    assert not list(folder.iterdir())
