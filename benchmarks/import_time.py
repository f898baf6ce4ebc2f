"""How long `import gradwire.client` takes in a fresh process: `python benchmarks/import_time.py [RUNS]`.

Prints the best and the median of some runs, less the interpreter's own start.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time


def main() -> None:
    """Measures and prints."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    bare = statistics.median(seconds("pass") for _ in range(runs))
    taken = [seconds("import gradwire.client") - bare for _ in range(runs)]
    print(f"import gradwire.client: best {min(taken):.3f} s, median {statistics.median(taken):.3f} s of {runs} runs")
    print(f"(an interpreter alone: {bare:.3f} s)")


def seconds(code: str) -> float:
    """Wall time of a process that runs `code`."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
