"""Deleting a folder so that a crash leaves it whole or gone by name: set aside with one rename, then removed."""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from pathlib import Path

log = logging.getLogger(__name__)

DELETED = ".~"  # begins no name that is accepted, nor what a trainer is writing


def set_aside(path: Path) -> Path:
    """Take the name away from a folder; where it lies now. Raises FileNotFoundError where there is none."""
    return path.rename(path.with_name(f"{DELETED}{uuid.uuid4().hex}"))


def remove(aside: Path) -> int:
    """Remove what was set aside; bytes freed. Blocks: gigabytes take their time."""
    _sync(aside.parent)  # the name is gone for good before anything behind it is
    before = _size(aside)
    _erase(aside)
    left = _size(aside)
    if left:
        log.warning("%d bytes of what was deleted are still in %s: see who owns the files", left, aside)
    return before - left


def clear_deleted(folder: Path) -> None:
    """Remove what a server that was killed had set aside. Blocks."""
    for aside in folder.glob(f"{DELETED}*"):
        _erase(aside)


def _erase(aside: Path) -> None:
    if aside.is_symlink() or aside.is_file():
        aside.unlink(missing_ok=True)  # an operator's link goes, what it points at is theirs
    else:
        shutil.rmtree(aside, ignore_errors=True)


def _size(path: Path) -> int:
    """Bytes of the files in a folder, links not followed."""
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size if path.is_symlink() or path.exists() else 0
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir() or file.is_symlink())


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
