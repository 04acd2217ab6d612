"""gpu.conf: what the node grants one workload of its GPUs; read by the shim (native/shim/config.c).

The shim looks at `/etc/pliant/gpu.conf` first, then at the file that PLIANT_GPU_CONF names. Bind the folder
that holds it, not the file, into a container: a resize replaces the file.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pliant.devices.ledger import LedgerError, announce

GRAIN = 2 << 20  # bytes: the least that drivers allocate
MAX_GPUS = 8  # that one workload may have shares of
Policy = Literal["none", "fair", "strict"]
_POLICIES: dict[str, Policy] = {"none": "none", "fair": "fair", "strict": "strict"}
_UUID = re.compile(r"(GPU|MIG)-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True, slots=True)
class Grant:
    """A share of one GPU."""

    uuid: str
    limit: int  # bytes: nothing can be allocated beyond
    request: int = 0  # bytes that it always has; the rest up to the limit is lent
    weight: int = 1  # of its compute share, 1 to 1000: thousandths of the GPU
    policy: Policy = "none"
    slice_us: int = 30_000  # longest turn while others wait
    share: Path | None = None  # file of this GPU's compute shares; None: no policy applies
    most: int = 0  # bytes up to which its limit may be raised; 0: never. The shim ignores it


@dataclass(frozen=True, slots=True)
class GpuConf:
    """The whole file. epoch rises with every change."""

    workload: str
    ledger: Path
    grants: tuple[Grant, ...]
    epoch: int = 1


def portion_bytes(usable: int, portion: int) -> int:
    """Bytes of a portion in thousandths, rounded down to whole grains, so that a GPU's portions fit on it."""
    return usable * portion // 1000 // GRAIN * GRAIN


def check(conf: GpuConf, usable: dict[str, int]) -> None:
    """usable: bytes of each GPU that may be shared. Raises ValueError: what cannot be granted, and why."""
    if not 1 <= len(conf.grants) <= MAX_GPUS:
        raise ValueError(f"shares of {len(conf.grants)} GPUs: one workload can have 1 to {MAX_GPUS}")
    for name, value in (("workload", conf.workload), ("ledger", str(conf.ledger))):
        if not value or re.search(r"[\s\0]", value):
            raise ValueError(f"{name} {value!r}: must not be empty or hold white space")
    if len(conf.workload.encode()) > 127 or len(str(conf.ledger).encode()) > 511:
        raise ValueError("the name of the workload or of its ledger is too long (127 and 511 bytes)")
    for grant in conf.grants:
        if not _UUID.fullmatch(grant.uuid):
            raise ValueError(f"{grant.uuid!r} is not the UUID of a GPU")
        if grant.uuid not in usable:
            raise ValueError(f"{grant.uuid}: this node has no such GPU")
        if grant.limit <= 0:
            raise ValueError(f"{grant.uuid}: a limit of {grant.limit} bytes; must be above 0")
        if grant.limit > usable[grant.uuid]:
            raise ValueError(
                f"{grant.uuid}: a limit of {grant.limit} bytes; the GPU has {usable[grant.uuid]} to share"
            )
        if not 0 <= grant.request <= grant.limit:
            raise ValueError(f"{grant.uuid}: a request of {grant.request} bytes is not 0 to the limit")
        if not 1 <= grant.weight <= 1000:
            raise ValueError(f"{grant.uuid}: a weight of {grant.weight}; must be 1 to 1000")
        if not 1000 <= grant.slice_us <= 1_000_000:
            raise ValueError(f"{grant.uuid}: a turn of {grant.slice_us} us; must be 1 ms to 1 s")
        if grant.share is not None and re.search(r"[\s\0]", str(grant.share)):
            raise ValueError(f"{grant.uuid}: the path {str(grant.share)!r} holds white space")


def render(conf: GpuConf) -> str:
    """The text of the file; its last line marks it as complete."""
    lines = ["pliant-gpu 1", f"workload {conf.workload}", f"epoch {conf.epoch}", f"ledger {conf.ledger}"]
    for grant in conf.grants:
        line = (
            f"gpu {grant.uuid} limit={grant.limit} request={grant.request} weight={grant.weight} "
            f"policy={grant.policy} slice_us={grant.slice_us}"
        )
        line += f" most={grant.most}" if grant.most else ""
        lines.append(line if grant.share is None else f"{line} share={grant.share}")
    return "\n".join([*lines, f"end {len(conf.grants)}", ""])


def parse(text: str) -> GpuConf:
    """What render wrote. Raises ValueError for anything else."""
    try:
        first, *lines, last, rest = text.split("\n")
        values, grants = dict[str, str](), list[Grant]()
        for line in lines:
            key, value = line.split(" ", 1)
            if key == "gpu":
                uuid, *words = value.split(" ")
                of = dict(word.split("=", 1) for word in words)
                grants.append(
                    Grant(
                        uuid,
                        int(of["limit"]),
                        int(of["request"]),
                        int(of["weight"]),
                        _POLICIES[of["policy"]],
                        int(of["slice_us"]),
                        Path(of["share"]) if "share" in of else None,
                        int(of.get("most", "0")),
                    )
                )
            else:
                values[key] = value
        conf = GpuConf(values["workload"], Path(values["ledger"]), tuple(grants), int(values["epoch"]))
    except (KeyError, ValueError):
        raise ValueError("it is not what was written") from None
    if (first, last, rest) != ("pliant-gpu 1", f"end {len(grants)}", ""):
        raise ValueError("it is cut short")
    return conf


def write(path: Path, conf: GpuConf, usable: dict[str, int]) -> None:
    """Checks conf, then replaces the file and notifies running programs. Raises ValueError, or OSError."""
    check(conf, usable)
    restore(path, conf)


def restore(path: Path, conf: GpuConf, book: Path | None = None) -> None:
    """Writes a conf that was checked before; not synced, because it need not survive a reboot. `book`: path
    of the ledger for this process, if it is not the one for the task. Raises OSError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("w", encoding="utf-8") as file:
            file.write(render(conf))
        fresh.chmod(0o644)
        fresh.rename(path)
    finally:
        fresh.unlink(missing_ok=True)
    try:
        announce(book or conf.ledger, conf.epoch)
    except (LedgerError, OSError):
        return  # no program runs yet, or the file is damaged: programs look at gpu.conf by themselves as well
