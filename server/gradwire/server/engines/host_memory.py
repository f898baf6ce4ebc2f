"""Giving freed memory back to the operating system.

A freed tensor goes to the allocator, which keeps its pages; only when it is told does the
process become smaller. vLLM preloads tcmalloc into its CPU processes; trainers use glibc's.
"""

from __future__ import annotations

import ctypes
import gc

import torch


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """A contiguous CPU tensor's own bytes, writable; the view keeps the tensor alive.

    Not by `tensor.numpy()`: that marks the storage as one that can never be freed.
    """
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise ValueError("only contiguous tensors in host memory show their bytes")
    nbytes = tensor.numel() * tensor.element_size()
    if not nbytes:
        return memoryview(b"")
    block = (ctypes.c_ubyte * nbytes).from_address(tensor.data_ptr())
    block.owner = tensor
    return memoryview(block).cast("B")


def whole(storage: torch.UntypedStorage) -> torch.Tensor:
    """All bytes of a storage as a uint8 tensor [nbytes] on its device; no copy."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def free(tensor: torch.Tensor) -> None:
    """Free a tensor's memory, and that of all its views; the tensor objects stay."""
    tensor.untyped_storage().resize_(0)


def restore(tensor: torch.Tensor, nbytes: int, *, zero: bool = False) -> None:
    """Give a freed tensor, and all its views, memory again; its contents are arbitrary or zero."""
    storage = tensor.untyped_storage()
    storage.resize_(nbytes)
    if zero:
        whole(storage).zero_()


def release_to_system() -> None:
    """Have the allocator return its free pages."""
    gc.collect()
    process = ctypes.CDLL(None)
    for function, arguments in (("MallocExtension_ReleaseFreeMemory", ()), ("malloc_trim", (0,))):
        try:
            getattr(process, function)(*arguments)
        except AttributeError:
            continue  # another allocator
