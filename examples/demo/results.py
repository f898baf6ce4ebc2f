"""Where a run's results go: into a folder that no earlier run has, unless the user named one."""

from __future__ import annotations

from itertools import count
from pathlib import Path


def results_folder(named: Path | None, usual: Path) -> Path:
    """The folder, made: the named one, which may have older results that are then replaced, or the next free one.

    Free ones are `usual`, then `usual`-2, `usual`-3 and so on; two runs that start together get one each.
    """
    if named is not None:
        named.mkdir(parents=True, exist_ok=True)
        return named
    usual.parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        folder = usual if number == 1 else usual.with_name(f"{usual.name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise AssertionError("numbers do not end")
