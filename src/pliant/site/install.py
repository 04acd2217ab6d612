"""Turns a machine into a shared one: an account, folders, programs, configuration and units. Repeated, it
changes only what differs.
"""

import grp
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pliant.site.config import Config, read, template
from pliant.site.trusted import Wrong, demand_rooted
from pliant.site.units import units

ACCOUNT, ADMINISTRATORS = "pliant", "pliant-admin"
PROGRAMS, ETC, UNITS = Path("/usr/local/lib/pliant"), Path("/etc/pliant"), Path("/etc/systemd/system")
NATIVE = ("pliant-warden", "pliant-supervise")

WARDEN_CONF = """\
# What the warden believes: docs/reference/warden.md. Root alone may change this file.
server-user {account}
supervisor {programs}/pliant-supervise
gpu /dev/nvidia[0-9]*
gpu-common /dev/nvidiactl
gpu-common /dev/nvidia-uvm*
gpu-common /dev/nvidia-caps/*
{processor}"""

ENOUGH = 8
"""A new machine with at least this many cores gives whole-core requests cores of their own."""

OWN_CORES = """\
# A job that asks for whole cores has them for itself, and no more: docs/guide/box.md, Processors.
cpu cores
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is not as it should be, and the call that corrects it."""

    what: str  # for people
    do: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Installation:
    """Where it is installed. With a root other than / only files are made, as packages need it."""

    native: Path  # folder of the built programs
    command: Path  # `pliant` of the environment that the units start
    root: Path = Path("/")

    @property
    def whole(self) -> bool:
        return self.root == Path("/")

    def steps(self) -> Iterator[Step]:
        """The steps that are still to be done, in order. Raises Wrong for what a program must not change."""
        if self.whole:
            yield from _accounts()
        config = read(ETC / "config.yaml") if self.whole else Config()
        for folder in (PROGRAMS, ETC, UNITS):
            yield from self._folder(folder)
        for name in NATIVE:
            yield from self._program(name)
        apart = self.whole and own_cores(Path("/proc/self/mountinfo").read_text(), os.cpu_count() or 1)
        processor = OWN_CORES if apart else ""
        conf = WARDEN_CONF.format(account=ACCOUNT, programs=PROGRAMS, processor=processor)
        yield from self._file(ETC / "warden.conf", conf, kept=True)
        yield from self._file(ETC / "config.yaml", template(), kept=True)
        texts = units(
            socket=config.socket,
            console=config.console,
            state=config.state,
            programs=PROGRAMS,
            etc=ETC,
            command=self.command,
            account=ACCOUNT,
        )
        for name, text in texts.items():
            yield from self._file(UNITS / name, text)

    def by_hand(self) -> str:
        """Shell commands that do what the units do."""
        config = read(ETC / "config.yaml")
        return (
            f"  install -d -o {ACCOUNT} -m 0700 {config.state}\n"
            f"  install -d -o {ACCOUNT} -m 0755 {config.socket.parent}\n"
            f"  {PROGRAMS}/pliant-warden &\n"
            f"  runuser -u {ACCOUNT} -- {self.command} serve --box &\n"
        )

    def _at(self, place: Path) -> Path:
        return self.root / place.relative_to("/")

    def _folder(self, place: Path) -> Iterator[Step]:
        path = self._at(place)
        if path.is_dir():
            self._trust(path)
        else:
            yield Step(f"make the folder {path}", lambda: path.mkdir(mode=0o755, parents=True))

    def _program(self, name: str) -> Iterator[Step]:
        source, path = self.native / name, self._at(PROGRAMS / name)
        if not source.exists():
            raise Wrong(f"{source} is missing. Build it: make native")
        if not path.exists() or path.read_bytes() != source.read_bytes():
            yield Step(f"copy {name} to {path}", lambda: _replace(path, source.read_bytes(), 0o755))

    def _file(self, place: Path, text: str, *, kept: bool = False) -> Iterator[Step]:
        """`kept`: an existing file stays as it is, because an administrator may have changed it."""
        path = self._at(place)
        if path.exists() or path.is_symlink():
            self._trust(path)
            if kept or path.read_text("utf-8") == text:
                return
        yield Step(f"write {path}", lambda: _replace(path, text.encode(), 0o644))

    def _trust(self, path: Path) -> None:
        if self.whole:
            demand_rooted(path)
        elif path.is_symlink():
            raise Wrong(f"{path} is a link. Remove it, or choose another --root.")


def _accounts() -> Iterator[Step]:
    try:
        grp.getgrnam(ADMINISTRATORS)
    except KeyError:
        yield Step(f"make the group {ADMINISTRATORS}", lambda: _run("groupadd", "--system", ADMINISTRATORS))
    try:
        entry = pwd.getpwnam(ACCOUNT)
    except KeyError:
        words = ["useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/var/lib/pliant"]
        words += ["--shell", "/usr/sbin/nologin", ACCOUNT]
        yield Step(f"make the account {ACCOUNT}", lambda: _run(*words))
    else:
        if entry.pw_uid == 0:
            raise Wrong(f"The account {ACCOUNT} is root's (uid 0). The server must not be root.")


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Replace a file by a new one: a running program keeps the old one."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Wrong(f"{words[0]} failed: {done.stderr.strip() or done.returncode}")


def own_cores(mounts: str, count: int) -> bool:
    """True if a new machine gives whole requests cores of their own: it has ENOUGH and can use cpusets."""
    for line in mounts.splitlines() if count >= ENOUGH else ():
        place, (kind, *rest) = line.split()[4], line.partition(" - ")[2].split()
        if kind == "cgroup" and "cpuset" in rest[-1].split(","):
            return True
        if kind == "cgroup2" and "cpuset" in Path(place, "cgroup.controllers").read_text().split():
            return True
    return False


def starts() -> bool:
    """True if systemd runs this machine, so that the units can be started."""
    return Path("/run/systemd/system").is_dir() and shutil.which("systemctl") is not None


def start(names: tuple[str, ...]) -> None:
    """Enable units, and start those that do not run yet; a unit that runs is not restarted. Raises Wrong."""
    _run("systemctl", "daemon-reload")
    for name in names:
        _run("systemctl", "enable", "--now", name)


def closed_to_others(path: Path) -> bool:
    """True if an account that is neither the owner nor in the group cannot enter a folder."""
    return not stat.S_IMODE(os.stat(path).st_mode) & 0o001
