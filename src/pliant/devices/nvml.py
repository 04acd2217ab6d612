"""The real GPUs of this machine, through NVML."""

import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pliant.control.ports import GpuLoad
from pliant.model.machine import Gpu, Node

T = TypeVar("T")


class NvmlDevices:
    """One node with the machine's GPUs, or none at all and the `reason` why.

    Every call of `nodes` looks again: a GPU that a process of no task uses is foreign.
    """

    simulated = False

    def __init__(
        self,
        ours: Callable[[int], bool],
        *,
        name: str = "",
        labels: Sequence[tuple[str, str]] = (),
        nvml: Any = None,
        proc: Path = Path("/proc"),
    ) -> None:
        """`ours`: True for the pid of a process of a task of this server; `nvml`: pynvml."""
        self._ours = ours
        self._name = name or platform.node()
        self._labels = tuple(sorted(labels))
        self._proc = proc
        self._unseen: set[tuple[str, int]] = set()  # (uuid, pid) that NVML listed last time and /proc did not
        self.reason = ""  # why there are no GPUs at the moment; empty if there are some
        self._nvml = nvml
        self._start()

    def nodes(self) -> Sequence[Node]:
        """The node as it is now; none without GPUs, or while the driver does not answer."""
        if self.reason:
            self._start()
        if self.reason:
            return ()
        try:
            gpus = self._gpus()
        except self._nvml.NVMLError as error:
            self.reason = f"the NVIDIA driver does not answer: {error}"
            return ()
        cpu = len(os.sched_getaffinity(0)) * 1000
        return (Node(self._name, gpus, cpu, self._main_memory(), self._labels),)

    def version(self) -> str:
        """The versions of the driver and of its newest CUDA; call it only while `reason` is empty."""
        cuda = int(self._nvml.nvmlSystemGetCudaDriverVersion_v2())
        return f"{_text(self._nvml.nvmlSystemGetDriverVersion())}, CUDA {cuda // 1000}.{cuda % 1000 // 10}"

    def processes(self) -> dict[str, dict[int, int]]:
        """Bytes by pid by GPU (uuid) of compute processes; a GPU that does not report them is missing."""
        return self._told(lambda _, rows: {row.pid: int(row.usedGpuMemory or 0) for row in rows})

    def loads(self) -> dict[str, GpuLoad]:
        """The load of each GPU, by uuid; a GPU that does not report it is missing."""
        return self._told(
            lambda handle, rows: GpuLoad(
                int(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
                sum(int(row.usedGpuMemory or 0) for row in rows),
            )
        )

    def _told(self, ask: Callable[[Any, Any], T]) -> dict[str, T]:
        """By uuid what `ask` returns for a GPU's handle and compute processes; without GPUs that fail."""
        found: dict[str, T] = {}
        if self.reason:
            return found
        with suppress(self._nvml.NVMLError):
            for index in range(self._nvml.nvmlDeviceGetCount()):
                with suppress(self._nvml.NVMLError):
                    handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                    rows = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
                    uuid = _text(self._nvml.nvmlDeviceGetUUID(handle))
                    found[uuid] = ask(handle, rows)
        return found

    def _start(self) -> None:
        if self._nvml is None:
            import pynvml

            self._nvml = pynvml
        self.reason = ""
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            self.reason = f"no NVIDIA driver here ({error})"
            return
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            self.reason = f"the NVIDIA driver does not answer: {error}"
            return
        if not count:
            self.reason = "the NVIDIA driver sees no GPU"

    def _gpus(self) -> tuple[Gpu, ...]:
        handles = [self._nvml.nvmlDeviceGetHandleByIndex(i) for i in range(self._nvml.nvmlDeviceGetCount())]
        unseen: set[tuple[str, int]] = set()
        gpus = []
        for index, handle in enumerate(handles):
            uuid = _text(self._nvml.nvmlDeviceGetUUID(handle))
            model = _text(self._nvml.nvmlDeviceGetName(handle))
            foreign = self._foreign(uuid, handle, unseen)
            gpus.append(Gpu(uuid, index, self._memory(handle), model, foreign))
        self._unseen = unseen
        return tuple(gpus)

    def _memory(self, handle: Any) -> int:
        """Bytes that tasks may share: the total without what the driver reserves, if it reports that."""
        try:
            info = self._nvml.nvmlDeviceGetMemoryInfo(handle, version=self._nvml.nvmlMemory_v2)
            return int(info.total - info.reserved)
        except self._nvml.NVMLError:  # an old driver, which has no such number
            return int(self._nvml.nvmlDeviceGetMemoryInfo(handle).total)

    def _foreign(self, uuid: str, handle: Any, unseen: set[tuple[str, int]]) -> bool:
        """True if a process of no task computes on it. Displays do not count."""
        try:
            pids = [process.pid for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
        except self._nvml.NVMLError:
            return False  # this GPU does not report it: rather use it than lose it
        foreign = False
        for pid in pids:
            if not (self._proc / str(pid)).exists():
                # Just ended, or of another pid namespace; the driver forgets the first kind within moments.
                foreign |= (uuid, pid) in self._unseen
                unseen.add((uuid, pid))
            elif not self._ours(pid):
                foreign = True
        return foreign

    def _main_memory(self) -> int:
        for line in (self._proc / "meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
        return 0


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
