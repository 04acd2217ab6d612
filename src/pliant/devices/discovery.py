"""Which GPUs a server shares: simulated ones where asked for, else the machine's own, else two simulated."""

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
    """The GPUs are those of other machines, of which an engine tells."""

    simulated = False

    def nodes(self) -> Sequence[Node]:
        return ()


def find_devices(specs: Sequence[str], cluster: str, ours: Callable[[int], bool]) -> Found:
    """`specs` as --simulate has them; `ours` tells whether a process belongs to a task of this server.
    Raises ValueError for a spec that makes no sense.
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
