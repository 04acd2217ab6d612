"""Takes most of the free GPU memory, as frameworks with an allocator of their own do."""

import ctypes
import sys

PERCENT = 96
_MIB = 2**20


def take(rank: int, workers: int) -> None:
    """Allocate PERCENT of what is free on the first GPU that this process sees, until the process ends.

    If that fails, training goes on without it, and one line says why; without a driver there is no line.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    calls = (
        ("cuInit", 0),
        ("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0),
        ("cuCtxSetCurrent", context),
        ("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total)),
    )
    for name, *arguments in calls:
        if code := getattr(cuda, name)(*arguments):
            _say(rank, workers, f"holds no GPU memory: {name} says {code}")
            return
    address, amount = ctypes.c_uint64(), free.value * PERCENT // 100
    if code := cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(amount)):
        _say(rank, workers, f"holds no GPU memory: cuMemAlloc of {amount // _MIB} MiB says {code}")
        return
    _say(rank, workers, f"holds {amount // _MIB} of {total.value // _MIB} MiB of GPU memory")


def _say(rank: int, workers: int, text: str) -> None:
    sys.stderr.write(f"quickstart: worker {rank}/{workers} {text}\n")  # print writes the line end separately
