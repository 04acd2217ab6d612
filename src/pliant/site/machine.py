"""Checks what a shared machine needs: what this one has, and what is missing."""

import os
import pwd
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from pliant.site import config, warden
from pliant.site.install import ACCOUNT, ADMINISTRATORS, ETC, NATIVE, PROGRAMS, closed_to_others, starts
from pliant.site.trusted import Wrong, demand_rooted

SLOW = 1.0
"""Seconds that the name service may take."""

LEAST_UID = 1000


class Finding(NamedTuple):
    what: str
    status: Literal["ok", "warn", "fail"]
    text: str


def findings(native: Path) -> list[Finding]:
    """`native`: folder of the built programs."""
    return [
        _root(),
        _systemd(),
        *_groups(Path("/proc/self/mountinfo").read_text("utf-8")),
        _names(),
        _environment(Path(sys.prefix)),
        _programs(native),
        *_account(),
        *_configuration(),
        _state(),
        _cards(),
        *_kernel(),
        _homes(),
    ]


def _root() -> Finding:
    if os.geteuid():
        return Finding("root", "warn", "this command does not run as root: some checks see less")
    return Finding("root", "ok", "this command runs as root")


def _systemd() -> Finding:
    if starts():
        return Finding("systemd", "ok", "it runs this machine")
    text = "it does not run this machine: start the three programs as docs/guide/box.md says"
    return Finding("systemd", "warn", text)


def _groups(mounts: str) -> Iterator[Finding]:
    """Control groups, by the lines of /proc/self/mountinfo."""
    first: dict[str, bool] = {}  # controller of the first version -> may be written
    second: tuple[str, bool] | None = None
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        words, kind = left.split(), right.split()
        if not kind or len(words) < 6:
            continue
        writable = "rw" in words[5].split(",")
        if kind[0] == "cgroup2":
            second = (words[4], writable)
        elif kind[0] == "cgroup":
            first |= dict.fromkeys(kind[-1].split(","), writable)
    if second is None and not first:
        yield Finding("control groups", "fail", "none are mounted: mount -t cgroup2 none /sys/fs/cgroup")
        return
    unified = set()
    if second is not None:
        if not second[1]:
            yield Finding(
                "control groups", "fail", f"{second[0]} is read-only: mount -o remount,rw {second[0]}"
            )
            return
        unified = _controllers(Path(second[0]))
    version = "version 2" if not first else "version 1 and 2" if second is not None else "version 1"
    note = (
        "" if version == "version 2" else "; kernels are best started with systemd.unified_cgroup_hierarchy=1"
    )
    yield Finding("control groups", "ok" if version == "version 2" else "warn", version + note)
    for name, walls in (("memory", "--memory"), ("pids", "the number of processes"), ("cpu", "--cpu")):
        if name in unified or first.get(name):
            yield Finding(
                f"{name} limits", "ok", f"held by {'version 2' if name in unified else 'version 1'}"
            )
        elif name in first:
            yield Finding(f"{name} limits", "fail", f"the controller {name} is mounted read-only")
        else:
            yield Finding(
                f"{name} limits", "fail", f"{walls} is not limited: the kernel has no controller {name}"
            )


def _controllers(place: Path) -> set[str]:
    try:
        return {*(place / "cgroup.controllers").read_text("utf-8").split()}
    except OSError:
        return set()


def _names() -> Finding:
    began = time.monotonic()
    count = len(os.getgrouplist(pwd.getpwuid(0).pw_name, 0))
    took = time.monotonic() - began
    if took > SLOW:
        return Finding("name service", "warn", f"it took {took:.1f} s to name the groups of root")
    return Finding("name service", "ok", f"it names accounts and their groups (root: {count})")


def _environment(prefix: Path) -> Finding:
    """The installation of Pliant itself, which jobs use and from which the server is started."""
    what = "installation"
    try:
        demand_rooted(prefix)
    except Wrong as error:
        return Finding(what, "fail", f"{error} Make a new one: python3 -m venv /opt/pliant")
    for part in (prefix, *prefix.parents):
        if closed_to_others(part):
            return Finding(what, "fail", f"other accounts cannot enter {part}: chmod a+rx {part}")
    if prefix.parts[1:2] in (("home",), ("root",)):
        return Finding(what, "fail", f"{prefix} is in a home, which the server cannot see: use /opt/pliant")
    return Finding(what, "ok", f"{prefix}, which root alone can change")


def _programs(native: Path) -> Finding:
    missing = [name for name in NATIVE if not (native / name).exists()]
    if missing:
        return Finding("programs", "fail", f"{', '.join(missing)} not built: make native")
    for name in NATIVE:
        installed = PROGRAMS / name
        if not installed.exists():
            return Finding("programs", "warn", f"{installed} is missing: pliant box install")
        if installed.read_bytes() != (native / name).read_bytes():
            return Finding("programs", "warn", f"{installed} is of another version: pliant box install")
    return Finding("programs", "ok", f"in {PROGRAMS}")


def _account() -> Iterator[Finding]:
    try:
        entry = pwd.getpwnam(ACCOUNT)
    except KeyError:
        yield Finding("account", "warn", f"there is no {ACCOUNT} yet: pliant box install")
        return
    if entry.pw_uid == 0:
        yield Finding("account", "fail", f"{ACCOUNT} is root (uid 0): give the server an account of its own")
        return
    if entry.pw_uid >= LEAST_UID:
        text = f"{ACCOUNT} has uid {entry.pw_uid}, as people have: better one below {LEAST_UID}"
        yield Finding("account", "warn", text)
        return
    yield Finding("account", "ok", f"{ACCOUNT} (uid {entry.pw_uid}); administrators: group {ADMINISTRATORS}")


def _configuration() -> Iterator[Finding]:
    for name, read in (("warden.conf", warden.read), ("config.yaml", config.read)):
        path = ETC / name
        if not path.exists():
            yield Finding(name, "warn", f"{path} does not exist: pliant box install")
            continue
        try:
            read(path)
        except Wrong as error:
            yield Finding(name, "fail", str(error))
        else:
            yield Finding(name, "ok", str(path))


def _state() -> Finding:
    place = config.Config().state
    try:
        seen = os.stat(place)
    except FileNotFoundError:
        return Finding("state folder", "ok", f"{place} will be made when the server starts")
    except OSError as error:
        return Finding("state folder", "fail", f"{place}: {error.strerror}")
    if stat.S_IMODE(seen.st_mode) & 0o077:
        mode = f"{stat.S_IMODE(seen.st_mode):04o}"
        return Finding("state folder", "fail", f"others may enter {place} (mode {mode}): chmod 0700 {place}")
    return Finding("state folder", "ok", str(place))


def _cards() -> Finding:
    cards = sorted(str(path) for path in Path("/dev").glob("nvidia[0-9]*"))
    if not cards:
        return Finding("GPUs", "warn", "there is no /dev/nvidia0: jobs get simulated GPUs only")
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if not Path("/dev", name).exists()]
    if missing:
        cure = "nvidia-modprobe -u -c 0"
        return Finding("GPUs", "fail", f"/dev/{missing[0]} is missing, and no job can make it: {cure}")
    return Finding("GPUs", "ok", ", ".join(cards))


KERNEL = (
    ("kernel/yama/ptrace_scope", 1, "processes of one account can read one another's memory"),
    ("fs/protected_symlinks", 1, "links in /tmp can lead elsewhere"),
    ("fs/protected_hardlinks", 1, "hard links to files of others can be made"),
)


def _kernel() -> Iterator[Finding]:
    for name, least, otherwise in KERNEL:
        word = name.replace("/", ".")
        try:
            value = int(Path("/proc/sys", name).read_text("utf-8"))
        except (OSError, ValueError):
            yield Finding(word, "warn", "not known to this kernel")
            continue
        if value < least:
            yield Finding(word, "warn", f"{value}: {otherwise}. Set it: sysctl -w {word}={least}")
        else:
            yield Finding(word, "ok", str(value))


def _homes() -> Finding:
    open_ones = []
    for entry in pwd.getpwall():
        if LEAST_UID <= entry.pw_uid < 65534 and entry.pw_dir.startswith("/"):
            try:
                mode = stat.S_IMODE(os.stat(entry.pw_dir).st_mode)
            except OSError:
                continue  # no home here, or a network share that is not mounted
            if mode & 0o007:
                open_ones.append(entry.pw_dir)
    if open_ones:
        text = f"others may enter {len(open_ones)} homes, {open_ones[0]} first: chmod 0700 {open_ones[0]}"
        return Finding("homes", "warn", text)
    return Finding("homes", "ok", "no other account may enter a home")
