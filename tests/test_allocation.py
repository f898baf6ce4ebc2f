"""The memory of large messages is used again."""

from __future__ import annotations

import subprocess
import sys

COUNT = """
import resource, sys
from gradwire.server.allocation import keep_freed_memory
if sys.argv[1] == "kept" and not keep_freed_memory():
    print(-1)
    sys.exit()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    bytearray(b"x" * 1_800_000)
before = faults()
for _ in range(50):
    bytearray(b"x" * 1_800_000)
print(faults() - before)
"""


def faults(how: str) -> int:
    ran = subprocess.run([sys.executable, "-c", COUNT, how], capture_output=True, text=True, check=True, timeout=60)
    return int(ran.stdout)


def test_messages_of_megabytes_cost_no_new_pages() -> None:
    kept = faults("kept")
    assert kept == -1 or kept < 500 < faults("given back")  # -1: not glibc
