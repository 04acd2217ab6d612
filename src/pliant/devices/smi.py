"""`nvidia-smi` for simulated cards: prints what the driver that it finds reports, in the familiar form.

Runs alone, without the package around it: python -S -E smi.py [-L | -i ID | --query-gpu=FIELD,... |
--query-compute-apps=FIELD,... --format=csv[,noheader][,nounits]].
"""

import ctypes
import sys
import time
from collections.abc import Callable, Sequence

USAGE = """nvidia-smi for simulated GPUs
  nvidia-smi                                  the table
  nvidia-smi -L                               the GPUs
  nvidia-smi --query-gpu=FIELD,...            --format=csv[,noheader][,nounits]
  nvidia-smi --query-compute-apps=FIELD,...   --format=csv[,noheader][,nounits]
  -i ID                                       only this GPU (number or UUID)"""
MIB = 2**20
LINE = "+" + "-" * 89 + "+"
CUT = "+" + "-" * 41 + "+" + "-" * 24 + "+" + "-" * 22 + "+"


class Trouble(Exception):
    """An error text to print instead, and the exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Pci(ctypes.Structure):
    _fields_ = (("legacy", ctypes.c_char * 16), ("numbers", ctypes.c_uint * 5), ("id", ctypes.c_char * 32))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gi", ctypes.c_uint),
        ("ci", ctypes.c_uint),
    )


class _Pair(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Driver:
    """The NVML library, loaded by its name, so that a preload that shows only a share takes effect."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            raise Trouble("NVIDIA-SMI has failed because it could not find libnvidia-ml.so.1.", 12) from None
        if self.call("nvmlInit_v2"):
            raise Trouble("NVIDIA-SMI has failed because there are no simulated GPUs in this process.", 9)

    def call(self, name: str, *arguments: object) -> int:
        return int(getattr(self._library, name)(*arguments))

    def text(self, name: str, *arguments: object) -> str:
        room = ctypes.create_string_buffer(96)
        return room.value.decode() if self.call(name, *arguments, room, 96) == 0 else "[N/A]"

    def number(self, name: str, *arguments: object) -> int:
        value = ctypes.c_uint()
        return value.value if self.call(name, *arguments, ctypes.byref(value)) == 0 else 0

    def gpus(self) -> list["Gpu"]:
        found = []
        for index in range(self.number("nvmlDeviceGetCount_v2")):
            handle = ctypes.c_void_p()
            if self.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle)) == 0:
                found.append(Gpu(self, handle, index))
        return found


class Gpu:
    """One GPU as it is now."""

    def __init__(self, driver: Driver, handle: ctypes.c_void_p, index: int) -> None:
        self.driver, self.handle, self.index = driver, handle, index
        memory, pci, rates = _Memory(), _Pci(), _Pair()
        driver.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
        driver.call("nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci))
        driver.call("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(rates))
        self.total, self.used, self.free = memory.total // MIB, memory.used // MIB, memory.free // MIB
        self.bus, self.busy = pci.id.decode(), rates.gpu
        self.name = driver.text("nvmlDeviceGetName", handle)
        self.uuid = driver.text("nvmlDeviceGetUUID", handle)
        self.celsius = driver.number("nvmlDeviceGetTemperature", handle, 0)
        self.watt = driver.number("nvmlDeviceGetPowerUsage", handle) / 1000
        self.watt_limit = driver.number("nvmlDeviceGetEnforcedPowerLimit", handle) / 1000

    def processes(self) -> list[tuple[int, str, int]]:
        """(pid, name, MiB)."""
        count, rows = ctypes.c_uint(512), (_Process * 512)()
        if self.driver.call(
            "nvmlDeviceGetComputeRunningProcesses_v3", self.handle, ctypes.byref(count), rows
        ):
            return []
        return [(row.pid, self._called(row.pid), row.used // MIB) for row in rows[: count.value]]

    def _called(self, pid: int) -> str:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                return file.read().split(b"\0", 1)[0].decode(errors="replace") or "[N/A]"
        except OSError:
            return "[Not Found]"


Fields = dict[str, tuple[Callable[[Gpu], object], str]]
GPU_FIELDS: Fields = {
    "index": (lambda gpu: gpu.index, ""),
    "name": (lambda gpu: gpu.name, ""),
    "uuid": (lambda gpu: gpu.uuid, ""),
    "gpu_uuid": (lambda gpu: gpu.uuid, ""),
    "gpu_name": (lambda gpu: gpu.name, ""),
    "count": (lambda gpu: len(gpu.driver.gpus()), ""),
    "driver_version": (lambda gpu: gpu.driver.text("nvmlSystemGetDriverVersion"), ""),
    "pci.bus_id": (lambda gpu: gpu.bus, ""),
    "gpu_bus_id": (lambda gpu: gpu.bus, ""),
    "serial": (lambda gpu: "[N/A]", ""),
    "memory.total": (lambda gpu: gpu.total, "MiB"),
    "memory.used": (lambda gpu: gpu.used, "MiB"),
    "memory.free": (lambda gpu: gpu.free, "MiB"),
    "memory.reserved": (lambda gpu: max(0, gpu.total - gpu.used - gpu.free), "MiB"),
    "utilization.gpu": (lambda gpu: gpu.busy, "%"),
    "utilization.memory": (lambda gpu: 0, "%"),
    "temperature.gpu": (lambda gpu: gpu.celsius, ""),
    "power.draw": (lambda gpu: f"{gpu.watt:.2f}", "W"),
    "power.limit": (lambda gpu: f"{gpu.watt_limit:.2f}", "W"),
    "pstate": (lambda gpu: "P0", ""),
    "compute_mode": (lambda gpu: "Default", ""),
    "persistence_mode": (lambda gpu: "Disabled", ""),
    "timestamp": (lambda gpu: time.strftime("%Y/%m/%d %H:%M:%S.000"), ""),
}
APP_FIELDS = ("pid", "process_name", "name", "used_memory", "used_gpu_memory")


def query(gpus: Sequence[Gpu], fields: Sequence[str], words: Sequence[str]) -> list[str]:
    """--query-gpu."""
    _known(fields, GPU_FIELDS)
    rows = [[(str(GPU_FIELDS[name][0](gpu)), GPU_FIELDS[name][1]) for name in fields] for gpu in gpus]
    return _csv([(name, GPU_FIELDS[name][1]) for name in fields], rows, words)


def query_apps(gpus: Sequence[Gpu], fields: Sequence[str], words: Sequence[str]) -> list[str]:
    """--query-compute-apps."""
    _known(fields, (*APP_FIELDS, "gpu_uuid", "gpu_name", "gpu_bus_id", "gpu_serial", "timestamp"))
    rows = []
    for gpu in gpus:
        for pid, name, used in gpu.processes():
            own = {"pid": str(pid), "process_name": name, "name": name}
            own |= {"used_memory": str(used), "used_gpu_memory": str(used)}
            rows.append([(own.get(field) or _of_gpu(gpu, field), _app_unit(field)) for field in fields])
    return _csv([(field, _app_unit(field)) for field in fields], rows, words)


def _of_gpu(gpu: Gpu, field: str) -> str:
    return str(GPU_FIELDS.get(field, GPU_FIELDS["serial"])[0](gpu))


def _app_unit(field: str) -> str:
    return "MiB" if field.startswith("used_") else ""


def _known(fields: Sequence[str], known: object) -> None:
    for name in fields:
        if name not in known:  # type: ignore[operator]
            raise Trouble(f'Field "{name}" is not a valid field to query.', 2)


def _csv(
    header: Sequence[tuple[str, str]], rows: Sequence[Sequence[tuple[str, str]]], words: Sequence[str]
) -> list[str]:
    units = "nounits" not in words
    lines = [", ".join(f"{name} [{unit}]" if unit else name for name, unit in header)]
    lines += [", ".join(f"{text} {unit}" if unit and units else text for text, unit in row) for row in rows]
    return lines[1:] if "noheader" in words else lines


def table(driver: Driver, gpus: Sequence[Gpu]) -> list[str]:
    """What it prints without options."""
    version, cuda = driver.text("nvmlSystemGetDriverVersion"), driver.number("nvmlSystemGetCudaDriverVersion")
    lines = [time.strftime("%a %b %e %H:%M:%S %Y"), LINE]
    lines.append(
        f"| NVIDIA-SMI {version:<22} Driver Version: {version:<14} CUDA Version: "
        f"{f'{cuda // 1000}.{cuda % 1000 // 10}':<9}|"
    )
    lines += [
        CUT,
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        CUT.replace("-", "=").replace("+", "|", 1)[:-1] + "|",
    ]
    for gpu in gpus:
        usage = f"{gpu.used}MiB / {gpu.total:>6}MiB"
        power = f"{gpu.watt:.0f}W / {gpu.watt_limit:>4.0f}W"
        lines += [
            f"|{gpu.index:>4}  {gpu.name[:25]:<25}      Off |   {gpu.bus:<16} Off |                  N/A |",
            f"| N/A{gpu.celsius:>5}C    P0       {power:>17} | {usage:>22} |{gpu.busy:>7}%      Default |",
            "|                                         |                        |                  N/A |",
            CUT,
        ]
    lines += ["", LINE, f"| {'Processes:':<88}|"]
    lines.append(f"| {' GPU   GI   CI              PID   Type   Process name':<71}{'GPU Memory':>16} |")
    lines.append(f"| {'       ID   ID':<71}{'Usage':>11}      |")
    lines.append("|" + "=" * 89 + "|")
    apps = [(gpu.index, *row) for gpu in gpus for row in gpu.processes()]
    for index, pid, name, used in apps:
        short = name if len(name) <= 34 else f"...{name[-31:]}"
        lines.append(f"|{index:>5}   N/A  N/A{pid:>17}      C   {short:<35}{f'{used}MiB':>10} |")
    if not apps:
        lines.append(f"|  {'No running processes found':<87}|")
    return [*lines, LINE]


def run(words: Sequence[str]) -> list[str]:
    """The lines for a command line. Raises Trouble."""
    options: dict[str, str] = {}
    rest = list(words)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name in ("-i", "--id", "-f", "--format", "--query-gpu", "--query-compute-apps") and not equals:
            if not rest:
                raise Trouble(f"{name} needs a value.\n{USAGE}", 2)
            value = rest.pop(0)
        options[{"--id": "-i", "--list-gpus": "-L", "--help": "-h"}.get(name, name)] = value
    if "-h" in options:
        return [USAGE]
    for name in options:
        if name not in ("-i", "-L", "--format", "--query-gpu", "--query-compute-apps"):
            raise Trouble(f"Invalid combination of input arguments: {name}\n{USAGE}", 1)
    driver = Driver()
    gpus = driver.gpus()
    if "-i" in options:
        gpus = [gpu for gpu in gpus if options["-i"] in (str(gpu.index), gpu.uuid, gpu.bus)]
    if not gpus:
        raise Trouble("No devices were found", 6)
    if "-L" in options:
        return [f"GPU {gpu.index}: {gpu.name} (UUID: {gpu.uuid})" for gpu in gpus]
    form = options.get("--format", "").split(",")
    for name, ask in (("--query-gpu", query), ("--query-compute-apps", query_apps)):
        if name in options:
            if form[0] != "csv":
                raise Trouble(f'Option "--format=" must name "csv" with {name}.', 2)
            return ask(gpus, options[name].split(","), form)
    return table(driver, gpus)


def main(words: Sequence[str]) -> int:
    try:
        lines = run(words)
    except Trouble as trouble:
        print(trouble)
        return trouble.code
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
