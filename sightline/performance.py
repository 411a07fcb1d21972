"""Settings of the machine that make training and translating faster without changing a single number."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

# Names and numbers of glibc's malloc.h and of Linux's mman.h.
M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8
MADV_HUGEPAGE = 14
_LARGEST_INT = 2**31 - 1
# Some versions of glibc refuse a threshold over 32 MiB.
_MMAP_THRESHOLDS = (2**30, 32 * 2**20)
_USUAL_TOP_PAD = 128 * 2**10
_HUGE_PAGE = 2 * 2**20
_HEAP = 3 * 2**29  # well below the largest threshold, else it would be given back at once
# What torch calls the instructions that multiply in bfloat16: of x86 processors, and of ARM's.
_BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")
_AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vbmi2"}
SHARE = "SIGHTLINE_PROCESSORS"

T = TypeVar("T")
R = TypeVar("R")


def tune_allocator() -> bool:
    """Makes glibc keep freed memory for the next batch, in huge pages; returns whether it did (elsewhere False).

    Each training step frees tensors of tens of megabytes (logits, their softmax, their gradients) and wants them
    again a moment later. By default glibc asks the kernel for each and gives it back, so every step pays for zeroed
    pages. Both thresholds are set together: one alone switches off glibc's own adaptation. The price is that memory,
    once used, stays with the process. Call it once, before the first large tensor.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    raised = any(mallopt(M_MMAP_THRESHOLD, threshold) == 1 for threshold in _MMAP_THRESHOLDS)
    kept = raised and bool(mallopt(M_TRIM_THRESHOLD, _LARGEST_INT) == 1)
    if kept:
        advise_huge_pages()
    return kept


def advise_huge_pages() -> bool:
    """Makes room on glibc's heap and asks the kernel for huge pages there; returns whether it agreed.

    A product that reads megabytes of weights spends part of its time looking up where its pages are; pages of 2 MiB
    instead of 4 KiB make that rare. The room is address space: it becomes memory where it is written to.
    """
    try:
        library = ctypes.CDLL(None)
        mallopt, malloc, free, sbrk, madvise = (
            getattr(library, name) for name in ("mallopt", "malloc", "free", "sbrk", "madvise")
        )
    except (OSError, AttributeError, TypeError):
        return False
    malloc.restype = sbrk.restype = ctypes.c_void_p
    malloc.argtypes, free.argtypes, sbrk.argtypes = [ctypes.c_size_t], [ctypes.c_void_p], [ctypes.c_ssize_t]
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    mallopt(M_ARENA_MAX, 1)  # other threads' memory would lie elsewhere
    mallopt(M_TOP_PAD, _HEAP)
    # The heap grows by this and by the room asked for; what was advised stays so when the block is free again.
    block = malloc(8 * _HUGE_PAGE)
    mallopt(M_TOP_PAD, _USUAL_TOP_PAD)
    if block is None:
        return False
    start = -(-block // _HUGE_PAGE) * _HUGE_PAGE
    size = sbrk(0) - start
    advised = size > 0 and madvise(start, size, MADV_HUGEPAGE) == 0
    free(block)
    return bool(advised)


def threads(count: int | None = None) -> int:
    """Sets how many threads torch computes with, and returns it.

    None takes torch's own choice, but no more than the process may use: in a container with a share of the machine's
    processors, a thread for each processor of the machine makes all of them wait.
    """
    import torch

    if count is None:
        count = max(1, min(torch.get_num_threads(), available_processors()))
    torch.set_num_threads(count)
    return count


def in_threads(function: Callable[[T], R], items: Sequence[T], count: int) -> Iterator[R]:
    """`map(function, items)` by `count` threads, which share those that torch computes with; in the order of the items.

    Many threads inside one operation wait for one another at its end; with an item each they meet when all is done.
    One thread, or one item, needs none but the caller's.
    """
    from concurrent.futures import ThreadPoolExecutor

    import torch

    count = min(count, len(items))
    if count <= 1:
        yield from map(function, items)
        return
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(count, "batch", torch.set_num_threads, (max(1, before // count),))
    try:
        yield from pool.map(function, items)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)  # new threads of this process take the number that was set last


def available_processors(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Processors this process may use: its affinity, and its container's `quota` file where there is one.

    The environment's SIGHTLINE_PROCESSORS makes it fewer, for processes that share them.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = os.environ.get(SHARE, "")
    if share.isdigit():
        allowed = max(1, min(allowed, int(share)))
    try:
        budget, period = quota.read_text().split()
        return max(1, min(allowed, round(int(budget) / int(period))))
    except (OSError, ValueError, ZeroDivisionError):  # no container, or "max": no limit
        return allowed


def has_fast_avx512(processor: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this processor has AVX-512, and does not slow down for it as the first ones that had it did.

    Those lack `avx512_vbmi2`, which came with Intel's Ice Lake and AMD's Zen 4.
    """
    with suppress(OSError, UnicodeDecodeError), processor.open(encoding="utf-8") as file:
        for line in file:  # the first of many is enough: to list them all takes Linux long
            if line.startswith("flags"):
                return {*line.split()} >= _AVX512
    return False


def peak_memory() -> int:
    """The most bytes this process has held: on the GPU where there is one, else in main memory (0: not known)."""
    import torch

    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    return peak_resident()


def peak_resident() -> int:
    """The most bytes of main memory this process has held (0: not known).

    Linux's getrusage would start from the size of the process that began this one, so the kernel's own account of this
    program comes first.
    """
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def has_bfloat16(device: str) -> bool | None:
    """Whether a "cpu" or "cuda" device computes in bfloat16 itself, rather than by way of float32, which is slower.

    None where this version of torch does not tell.
    """
    import torch

    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    known: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(known.get(name, False) for name in _BFLOAT16) if known else None
