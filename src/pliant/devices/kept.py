"""Limits and ledgers of the pods of one node, in a folder that its agent shares with them: a pod reads its
limits there, writes its ledger, and can change nothing else."""

import fcntl
import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pliant.devices import ledger
from pliant.devices.config import GpuConf, check, parse, restore

INSIDE = "/run/pliant/ledger"
"""The path of its ledger in a pod."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The limits and the ledger of one pod."""

    uid: str
    conf: GpuConf
    ledger: Path


def read(text: str) -> GpuConf:
    """The limits that a server wrote for a pod. Raises ValueError with what is wrong with them."""
    conf = parse(text)
    check(conf, {grant.uuid: grant.limit for grant in conf.grants})
    if str(conf.ledger) != INSIDE:
        raise ValueError(f"its ledger is {conf.ledger}, not {INSIDE}")
    return conf


class Folder:
    """For one agent at a time: see `claim`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = -1

    def claim(self) -> bool:
        """False while another agent of this node has it. Raises ValueError if the folder cannot be used."""
        try:
            self._path.mkdir(mode=0o755, exist_ok=True)
            if self._lock < 0:
                self._lock = os.open(self._path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise ValueError(
                f"nothing can be written to {self._path}: {error.strerror}. Mount that folder of the node "
                "(hostPath), writable, and run the agent as root."
            ) from error
        return True

    def put(self, name: str, uid: str, conf: GpuConf) -> Kept:
        """Writes the limits of a pod; removes what an older pod of that name left. Raises OSError."""
        place = self._path / name
        if self._uid(place) != uid:
            self._make(place, uid, conf)
        elif self._conf(place) != conf:
            restore(place / "conf" / "gpu.conf", conf, place / "ledger")
        return Kept(uid, conf, place / "ledger")

    def _make(self, place: Path, uid: str, conf: GpuConf) -> None:
        fresh = place.with_name(f".new-{place.name}")
        for old in (fresh, place):
            if old.exists():
                shutil.rmtree(old)
        (fresh / "conf").mkdir(parents=True)
        restore(fresh / "conf" / "gpu.conf", conf, fresh / "ledger")
        (fresh / "ledger").touch()
        (fresh / "ledger").chmod(0o666)  # any account of the task may write to it
        (fresh / "uid").write_text(uid, encoding="utf-8")
        fresh.rename(place)  # complete, or absent

    def _uid(self, place: Path) -> str:
        try:
            return (place / "uid").read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return ""

    def _conf(self, place: Path) -> GpuConf | None:
        try:
            return parse((place / "conf" / "gpu.conf").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None  # it is written again

    def drop(self, name: str) -> None:
        """Removes the files of a pod that has ended."""
        shutil.rmtree(self._path / name, ignore_errors=True)

    def sweep(self, names: Mapping[str, str]) -> None:
        """Removes the files of all other pods than these (uid by name)."""
        for found in self._path.iterdir():
            if found.is_dir() and (found.name not in names or self._uid(found) != names[found.name]):
                shutil.rmtree(found, ignore_errors=True)


def bound(path: Path) -> bool:
    """True if that ledger was longer than a ledger is, and was cut: what a pod writes there would fill the
    memory of the node. Raises OSError."""
    found = os.stat(path, follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode) or found.st_size <= ledger.SIZE:
        return False
    os.truncate(path, ledger.SIZE)
    return True
