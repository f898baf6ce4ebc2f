"""What the C library's allocator does with large blocks.

By default glibc gives the memory of a message of megabytes back to the system when it is freed, and the next one pays
for its pages again: of a call with 1.8 MB that is half the time.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_KEPT = 64 << 20  # bytes of free memory at the end of a heap that stay with the process
_LARGE = 32 << 20  # bytes from which a block is the system's own; glibc takes no more


def keep_freed_memory() -> bool:
    """Reuse the memory of large messages, in this process. False: the C library is another one."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _KEPT)) and bool(mallopt(_M_MMAP_THRESHOLD, _LARGE))
