"""All benchmarks, or those named: `python benchmarks/run.py [NAME ...]`. One table, and JSON in runs/bench.

Each runs in a process of its own, one after the other. Run it on an idle machine: it takes both cores of two.
Two more print tables of their own: `benchmarks/import_time.py` (the client's import) and
`benchmarks/sampler_overhead.py` (what the server's sampler costs over the bare engine).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # a script has only its own folder there

from benchmarks.report import Row, load, table  # noqa: E402

NAMES = ("streaming", "training", "weight_sync", "memory", "policies", "sessions")


def run(name: str, folder: Path) -> list[Row]:
    """A benchmark's rows. RuntimeError when it fails."""
    file = folder / f"{name}.json"
    file.unlink(missing_ok=True)
    print(f"== {name}", file=sys.stderr, flush=True)
    # Its own table goes to stderr: stdout is for the one at the end.
    code = subprocess.call(
        [sys.executable, "-m", f"benchmarks.{name}", "--json", str(file)], cwd=ROOT, stdout=sys.stderr
    )
    if code != 0:
        raise RuntimeError(f"the benchmark {name} failed; what it said is above")
    return load(file)


def main() -> int:
    """Command line; 1 when a ratio falls short."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)} (all of them)")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "bench", help="folder of the JSON (runs/bench)")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(NAMES)):
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    folder = arguments.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    machine = {"cores": len(os.sched_getaffinity(0)), "machine": platform.machine(), "load_before": os.getloadavg()[0]}
    rows = [row for name in arguments.names or NAMES for row in run(name, folder)]
    machine["load_after"] = os.getloadavg()[0]
    result = {"unix_time": int(time.time()), **machine, "rows": [asdict(row) for row in rows]}
    (folder / "all.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(table(rows))
    print(f"\n{machine['cores']} cores; load {machine['load_before']:.1f} before, {machine['load_after']:.1f} after")
    return 1 if any(row.falls_short for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
