"""What a request takes of one device."""

from pliant.model.machine import Gpu, Share
from pliant.model.quantity import GPU
from pliant.model.workload import Request


def portion_of(memory: int, device_memory: int) -> int:
    """Thousandths of a device for an amount of memory, rounded up; above GPU if the device is too small."""
    return -(-memory * GPU // device_memory) if device_memory > 0 else GPU + 1


def estimate(request: Request, device_memory: int) -> int:
    """Milli-GPUs of a request on devices of this memory (bytes)."""
    if request.gpu_memory:
        return request.devices * min(GPU, portion_of(request.gpu_memory, device_memory))
    return request.devices * request.portion


def share_on(gpu: Gpu, request: Request) -> Share:
    """What a request takes of one device; its portion is above GPU where it can never fit."""
    whole = request.portion >= GPU and not request.gpu_memory
    return Share(gpu.uuid, *amounts(gpu, request), "" if whole else request.owner)


def amounts(gpu: Gpu, request: Request) -> tuple[int, int]:
    """What share_on() takes, in thousandths and bytes."""
    if request.gpu_memory:
        return portion_of(request.gpu_memory, gpu.memory), request.gpu_memory
    if request.portion >= GPU:
        return GPU, gpu.memory
    return request.portion, request.portion * gpu.memory // GPU
