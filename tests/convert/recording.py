"""Runs in a process of its own, with the source's library: makes agents, records what they do, converts them.

`python recording.py LIBRARY FOLDER` leaves a bundle NAME and the record NAME.npz for each agent of the library.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gradwire.server.convert.describe import leaves, rebuild, sample_rows
from gradwire.server.convert.worker import convert

ROWS = 12


class Recorder:
    """One agent's folder and record."""

    def __init__(self, folder: Path, name: str, space: Any) -> None:
        self.folder, self.name = folder, name
        self.flat = sample_rows(space, ROWS)
        self.observation = rebuild(space, iter(self.flat))
        self.record: dict[str, Any] = {key: array for (key, _), array in zip(leaves(space), self.flat, strict=True)}

    def finish(self, save: Callable[[str], Any], suffix: str, **request: Any) -> None:
        checkpoint = str(self.folder / f"{self.name}{suffix}")
        save(checkpoint)
        output, samples = self.folder / self.name, self.folder / f"{self.name}.samples"
        output.mkdir()
        samples.mkdir()
        asked = {"framework": "auto", "algo": "", "vec_normalize": "", "check_bounds": True, **request}
        convert({"source": checkpoint, "output": str(output), "samples": str(samples), **asked})
        np.savez(self.folder / f"{self.name}.npz", allow_pickle=False, **self.record)


if __name__ == "__main__":
    library, out = sys.argv[1:]
    if library == "stable_baselines3":
        from tests.convert.sb3_agents import record_all
    else:
        from tests.convert.agilerl_agents import record_all
    record_all(Path(out))
    print(json.dumps(sorted(path.stem for path in Path(out).glob("*.npz"))))
