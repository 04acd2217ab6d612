"""Finds the GPUs that a server shares: simulated ones if requested, else the machine's, else 2 simulated."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pliant.control.ports import Devices, GpuLoad
from pliant.devices.nvml import NvmlDevices
from pliant.devices.simulated import SimulatedDevices
from pliant.model.machine import Node


@dataclass(frozen=True, slots=True)
class Found:
    """The GPUs to share, and what their owner should know about them."""

    devices: Devices
    notice: str = ""
    processes: Callable[[], Mapping[str, Mapping[int, int]]] = dict  # bytes by pid by real GPU, now
    loads: Callable[[], Mapping[str, GpuLoad]] = dict  # of real GPUs, now


class Elsewhere:
    """No GPUs of this machine: an engine reports those of other machines."""

    simulated = False

    def nodes(self) -> Sequence[Node]:
        return ()


def find_devices(specs: Sequence[str], cluster: str, ours: Callable[[int], bool]) -> Found:
    """`specs`: the values of --simulate; `ours`: True for a pid of a task of this server.
    Raises ValueError for an invalid spec.
    """
    if specs:
        return Found(SimulatedDevices(specs, cluster))
    real = NvmlDevices(ours)
    if real.nodes():
        return Found(real, processes=real.processes, loads=real.loads)
    return Found(
        SimulatedDevices(["1x2"], cluster),
        f"No GPU of this machine can be used ({real.reason}): one node with two GPUs is simulated (1x2).",
    )
