"""Renders amounts of GPUs, cores and memory: what is requested and what is allocated."""

from collections.abc import Sequence

from pliant.api.responses.amounts import gpus, quantity
from pliant.model.machine import Placement
from pliant.model.quantity import format_bytes
from pliant.model.workload import Request
from pliant.wire import workload as wire


def requested(requests: Sequence[tuple[Request, int]]) -> wire.RequestedResources:
    """The sum over the requests, each with its number of tasks."""
    by_memory = any(request.gpu_memory for request, _ in requests)
    devices = any(request.devices for request, _ in requests)
    memory = sum(request.gpu_memory * request.devices * count for request, count in requests)
    most = sum(
        (request.gpu_memory_limit or request.gpu_memory) * request.devices * count
        for request, count in requests
    )
    gpu = sum(request.gpu * count for request, count in requests)
    limit = sum(
        max(request.portion_limit, request.portion) * request.devices * count for request, count in requests
    )
    return {
        "gpuRequestType": "memory" if by_memory else "portion" if devices else None,
        "gpu": {"request": gpus(gpu), "limit": gpus(limit)} if devices and not by_memory else None,
        "gpuMemory": {"request": quantity(memory), "limit": quantity(most)} if by_memory else None,
        "cpu": {"request": sum(request.cpu * count for request, count in requests) / 1000, "limit": None},
        "cpuMemory": {
            "request": quantity(sum(request.memory * count for request, count in requests)),
            "limit": None,
        },
    }


def allocated(placements: Sequence[Placement]) -> wire.AllocatedResources:
    """The sum of what these placements occupy."""
    memory = sum(share.memory for placement in placements for share in placement.shares)
    return {
        "gpu": gpus(sum(placement.gpu for placement in placements)),
        "gpuMemory": format_bytes(memory) if memory else None,
        "cpu": sum(placement.cpu for placement in placements) / 1000,
        "cpuMemory": format_bytes(sum(placement.memory for placement in placements)) if placements else None,
    }
