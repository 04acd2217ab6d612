"""Checks which guarantees for shares of GPUs hold on this machine, each with the reason."""

import fcntl
import os
import platform
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pliant.control.fractions import Finding
from pliant.control.ports import Devices
from pliant.devices.cards import DRIVERS
from pliant.devices.handout import SHIM
from pliant.devices.ledger import SIZE
from pliant.devices.nvml import NvmlDevices
from pliant.devices.place import Place

CONFINED = "control groups hold each task to its memory, and to its part of the cores when all are busy"
COUNTED = (
    "--memory and --cpu are counted when a job is placed, and hold no job of this account; on a shared "
    "machine control groups do (docs/guide/box.md)"
)

GUIDE = "docs/guide/gpu-fractions.md says more"
_COOPERATIVE = (
    "`env -i`, static and musl programs, RTLD_DEEPBIND, direct system calls and set-uid programs go around a "
    "preload; the node finds them about a second later and says so, it does not stop them"
)


def examine(
    devices: Devices, place: Place, supervisor: str, writable: str, confined: bool = False
) -> list[Finding]:
    """`supervisor`: why the native one is missing; `writable`: why a task could change its own limits;
    `confined`: tasks are in control groups of their own.
    """
    shim = _shim(SHIM)
    return [
        _driver(devices),
        _gpus(devices),
        Finding("main memory and cores", confined, CONFINED if confined else COUNTED),
        Finding("simulated drivers", *_simulated(devices)),
        Finding("shim", *shim),
        Finding("supervisor", not supervisor, supervisor or "the native one"),
        Finding(
            "own view of files", not writable, writable or "a task cannot change the file with its limits"
        ),
        _place(place),
        Finding("locks", *_locks()),
        Finding("memory limits", shim[0], _memory(shim, writable)),
        Finding(
            "compute shares",
            shim[0],
            "portions take fair turns on a GPU; amounts of memory take none" if shim[0] else shim[1],
        ),
        Finding("wholly enforced", False, f"{_COOPERATIVE}; {GUIDE}"),
        Finding("faults kept apart", False, "an error that resets a GPU hits all who share it"),
        Finding(
            "limits by the driver",
            False,
            "drivers from release 615 can limit memory by themselves; this version does not ask them to",
        ),
    ]


def _driver(devices: Devices) -> Finding:
    real = devices if isinstance(devices, NvmlDevices) else NvmlDevices(lambda pid: True)
    if real.reason:
        return Finding("driver", False, real.reason)
    return Finding("driver", True, real.version())


def _gpus(devices: Devices) -> Finding:
    nodes = devices.nodes()
    count = sum(len(node.gpus) for node in nodes)
    kind = "simulated, by --simulate or because no GPU was found" if devices.simulated else "of this machine"
    return Finding("GPUs", count > 0, f"{count} {kind}")


def _simulated(devices: Devices) -> tuple[bool, str]:
    if not (DRIVERS / "libcuda.so.1").exists():
        return False, "they were not built: install a C compiler and install Pliant again"
    if not devices.simulated:
        return True, "there, and not used: the GPUs are real"
    return True, "programs on simulated GPUs find libcuda.so.1, libnvidia-ml.so.1 and nvidia-smi"


def _shim(path: Path) -> tuple[bool, str]:
    if not path.exists():
        return False, f"{path.name} was not built: install a C compiler and install Pliant again"
    if set(str(path)) & set(" \t:"):
        return False, f"{path} has a space or a colon in its name, with which it cannot be preloaded"
    command = [shutil.which("true") or "/bin/true"]
    env = {"LD_PRELOAD": str(path), "PATH": os.defpath}
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, f"it could not be tried: {error}"
    if done.returncode or done.stderr:
        return False, f"it does not load here: {done.stderr.strip() or done.returncode}"
    libc = " ".join(platform.libc_ver()).strip() or "this C library"
    return True, f"{path} loads with {libc}"


def _place(place: Place) -> Finding:
    root = place.chosen
    there = next(folder for folder in (root, *root.parents) if folder.exists())
    try:
        seen = os.statvfs(there)
    except OSError as error:
        return Finding("place in memory", False, f"{there}: {error.strerror}")
    free = seen.f_bavail * seen.f_frsize
    if free < 16 * SIZE:
        return Finding("place in memory", False, f"{root}: {free >> 10} KiB left; each task takes 196")
    if not {Path("/dev/shm"), Path("/run")} & {root, *root.parents}:  # compared with  # nosec B108
        return Finding("place in memory", True, f"{root}, which may be a disk: counting is slower there")
    return Finding("place in memory", True, f"{root}, {free >> 20} MiB left")


def _locks() -> tuple[bool, str]:
    asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        with tempfile.TemporaryFile() as file:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, asked)
    except OSError as error:
        return False, f"no locks of open files ({error.strerror}): who lives could not be told"
    return True, "of open files: what a killed process held is free at once"


def _memory(shim: tuple[bool, str], writable: str) -> str:
    if not shim[0]:
        return f"scheduled, not enforced: {shim[1]}"
    return f"cooperative: {writable}" if writable else "enforced by shim"


def table(findings: Sequence[Finding]) -> list[dict[str, object]]:
    """The findings as JSON objects."""
    return [{"what": one.what, "holds": one.holds, "text": one.text} for one in findings]
