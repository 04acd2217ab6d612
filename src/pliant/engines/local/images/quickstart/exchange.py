"""What parent and workers share: one block of float64, cut into arrays."""

import mmap
from dataclasses import dataclass

import numpy as np

from .digits import Floats
from .settings import PARAMETERS, SLICES


@dataclass(frozen=True, slots=True)
class Exchange:
    parameters: Floats  # written by the parent between steps only
    gradients: Floats  # [slice, parameter]: sum over the slice's records, written by the slice's worker
    results: Floats  # [slice, 2]: sum of losses and number of right records
    cpu_seconds: Floats  # [worker]: CPU time used since it was ready


def open_exchange(memory: mmap.mmap, workers: int) -> Exchange:
    """Arrays over the shared memory that `Crew` made for this many workers."""
    block = np.frombuffer(memory, dtype=np.float64)
    ends = np.cumsum((PARAMETERS, SLICES * PARAMETERS, SLICES * 2))
    parameters, gradients, results, cpu_seconds = np.split(block, ends)
    assert cpu_seconds.size == workers, "the memory was made for another number of workers"
    gradients = gradients.reshape(SLICES, PARAMETERS)
    return Exchange(parameters, gradients, results.reshape(SLICES, 2), cpu_seconds)
