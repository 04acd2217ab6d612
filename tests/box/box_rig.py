"""A warden as its unit starts it, with Unix accounts, folders and control groups that are removed again.

The next start removes what a crashed test left, found by name: all names begin with
`plt`.
"""

import errno
import fcntl
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from pliant.engines.local.launch.supervisor import NATIVE
from pliant.engines.local.launch.warden import (
    END,
    Owner,
    Refused,
    Verb,
    Walls,
    Warden,
    close,
    launch,
    receive,
)
from pliant.model.workload import AttemptId
from tests.house import waiting

SECONDS = 900.0 if os.environ.get("PLIANT_GUEST") else waiting.SECONDS  # a guest that qemu emulates is slow
WARDEN = NATIVE.with_name("pliant-warden")
CAPABILITIES = "setuid,setgid,setpcap,kill,sys_admin,chown,sys_resource,audit_write,sys_ptrace,sys_chroot"
PYTHON = next(p for p in ("/usr/bin/python3", os.path.realpath(sys.executable)) if os.path.exists(p))
"""One that every account may run."""

NUMBERS = count(1)


def until(condition, what):
    return waiting.until(condition, what, SECONDS)


def trees():
    """Mount points of control groups of either version."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        if right.split()[0] in ("cgroup", "cgroup2"):
            found.append(Path(left.split()[4]))
    return found


def accounts(*command, gone=False):
    """Runs one change of the account files at a time: their tools give up if another one holds the lock.

    `gone`: another process may have removed the account meanwhile.
    """
    with open("/run/plt-accounts", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or (gone and done.returncode == 6), done


def group_file(pattern):
    """The one file that matches; does not walk other folders, as groups of other tests come and go."""
    return next(file for tree in trees() for file in tree.glob(pattern))


def members(name):
    """Pids in the group of that name and in all groups below it."""
    found = set()
    for tree in trees():
        for folder, _, files in os.walk(tree / name):  # groups may go away meanwhile
            with suppress(OSError):
                if "cgroup.procs" in files:
                    found.update(map(int, Path(folder, "cgroup.procs").read_text().split()))
    return found


class Box:
    """One warden for one test module; `base` is a folder that root alone can change."""

    def __init__(self, tag: str) -> None:
        self.tag = f"plt{os.getpid()}{tag}{next(NUMBERS)}"[:20]
        self.base = Path("/run") / self.tag
        self.group = f"/{self.tag}"
        self.accounts: list[str] = []
        self.process = None
        self.epoch = 1
        self.number = 0
        self.config = self.base / "warden.conf"
        self.warden = Warden(self.base / "run" / "sock")

    def make(self, server="") -> None:
        self.base.mkdir(mode=0o755)
        self.base.chmod(0o755)
        (self.base / "pids").touch()
        shutil.copy(NATIVE, self.base / "supervise")
        shutil.copy(WARDEN, self.base / "warden")
        self.server = (
            Owner(0, "root") if server else self.account("s", shell="/usr/sbin/nologin", system=True)
        )
        self.alice = self.account("a", groups=(self.make_group("g"),))
        self.bob = self.account("b")
        self.write_config()
        for tree in trees():  # as systemd delegates to pliant-jobs.service
            (tree / self.tag).mkdir()

    def make_group(self, letter):
        name = f"{self.tag}{letter}"
        accounts("groupadd", name)
        return name

    def account(self, letter, *, shell="/bin/sh", groups=(), system=False) -> Owner:
        name = f"{self.tag}{letter}"
        command = [
            "useradd",
            "--no-log-init",
            "--shell",
            shell,
            "--home-dir",
            str(self.base / f"home-{letter}"),
        ]
        command += ["--system"] if system else ["--create-home", "--skel", "/nonexistent-skel"]
        command += ["--groups", ",".join(groups)] if groups else []
        accounts(*command, name)
        self.accounts.append(name)
        return Owner(pwd.getpwnam(name).pw_uid, name)

    def write_config(self, extra: str = "") -> None:
        self.config.write_text(
            f"server-user {self.server.name}\nmin-uid 1000\nwork {self.base}/users\nruntime {self.base}/run\n"
            f"state {self.base}/state\ngroup {self.group}\nsupervisor {self.base}/supervise\n"
            f"gpu /dev/full\ngpu /dev/zero\n{extra}"
        )
        self.config.chmod(0o644)

    # ---- the warden ----

    view: Sequence[str] = ()
    """Words before the warden's command, to give it another view of the machine's files."""

    def start(self) -> None:
        log = os.open(self.base / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
        rights = "-all," + ",".join(f"+{c}" for c in CAPABILITIES.split(","))
        self.process = subprocess.Popen(
            [*self.view, "setpriv", "--bounding-set", rights, "--inh-caps", "-all",
             str(self.base / "warden"), str(self.config)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        os.close(log)
        until(self.listens, "the warden listens")

    def listens(self) -> bool:
        assert self.process.poll() is None, self.journal()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe, suppress(OSError):
            probe.connect(str(self.warden.path))
            return True
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def journal(self) -> str:
        return (self.base / "journal").read_text()

    def refused(self, verb: Verb, **words) -> str:
        """The errno's name and the message of a refused order; the journal has the message, too."""
        before = len(self.journal())
        try:
            self.ask(verb, **words)
        except Refused as error:
            assert "refused" in self.journal()[before:]
            return f"{errno.errorcode[error.errno]}: {error.strerror}"
        raise AssertionError(f"{verb.name} was not refused")

    def execute(self, task, argv, *, tty=False, env=None, cwd="/") -> tuple[int, str]:
        """Wait status and output of a command inside a task."""
        answer, said = os.pipe()
        words, null = launch(argv, {"PATH": os.defpath, **(env or {})}), os.open("/dev/null", os.O_RDWR)
        got = self.ask(
            Verb.EXEC, attempt=task.id, owner=task.owner, fds=(null, said, words), cwd=cwd, keep=True
        )
        for fd in (words, null, said):
            os.close(fd)
        close(got)
        with open(answer) as file:
            text = file.read()
        status = receive(got.connection).status
        got.connection.close()
        return status, text

    # ---- orders, as the server gives them ----

    def attempt(self) -> AttemptId:
        self.number += 1
        return AttemptId(f"w-{self.number}", "worker-0", 1)

    def ask(self, verb: Verb, **words):
        """Sends an order as the server's account: the kernel tells the warden who connects."""
        os.seteuid(self.server.uid)
        try:
            return self.warden.ask(verb, words.pop("epoch", self.epoch), **words)
        finally:
            os.seteuid(0)

    def groups(self):
        """Control groups of jobs, as the warden sees them."""
        os.seteuid(self.server.uid)
        try:
            return self.warden.list(self.epoch)
        finally:
            os.seteuid(0)

    def facts(self, attempt):
        return next((one for one in self.groups() if one.attempt == attempt), None)

    def end_all(self) -> None:
        if self.process.poll() is not None:
            self.start()
        for one in self.groups():
            self.ask(Verb.SIGNAL, attempt=one.attempt, owner=Owner(one.uid, ""), flags=END)

    def run(self, owner, argv, *, attempt=None, cwd="/", env=None, walls=Walls(), **words):  # noqa: B008
        """A started attempt."""
        return Started(self, owner, attempt or self.attempt(), argv, cwd, env or {}, walls, words)

    def shell(self, owner, script, **words):
        return self.run(owner, ["/bin/sh", "-c", script], **words)

    # ---- the end ----

    def clean(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        sweep(self.tag)


def sweep(tag: str) -> None:
    """Ends and removes everything of that name, whichever test left it."""
    for _ in range(1200):
        left = members(tag) - {os.getpid()}
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not left:
            break
        time.sleep(0.05)
    for tree in trees():
        for folder in sorted((tree / tag).rglob("*"), key=lambda path: -len(path.parts)):
            if folder.is_dir():
                with suppress(OSError):
                    folder.rmdir()
        with suppress(OSError):
            (tree / tag).rmdir()
    base = Path("/run") / tag
    subprocess.run(["umount", "-l", str(base / "run" / "shm")], capture_output=True, check=False)
    shutil.rmtree(base, ignore_errors=True)
    for file, command in (("/etc/passwd", "userdel"), ("/etc/group", "groupdel")):
        for line in Path(file).read_text().splitlines():
            if line.startswith(tag):
                accounts(command, "--force", line.split(":")[0], gone=True)


def sweep_the_dead() -> None:
    """Sweeps what tests left whose process is gone."""
    for folder in Path("/run").glob("plt*"):
        digits = "".join(iter_digits(folder.name[3:]))
        if digits and not Path(f"/proc/{digits}").exists():
            sweep(folder.name)


def iter_digits(text):
    for letter in text:
        if not letter.isdigit():
            return
        yield letter


class Started:
    """An attempt that the warden was asked to start."""

    def __init__(self, box, owner, attempt, argv, cwd, env, walls, words) -> None:
        self.box, self.owner, self.id = box, owner, attempt
        server = box.server
        folder = box.base / "attempts" / attempt.workload / attempt.task / str(attempt.number)
        self.folder = folder
        (folder / "pub").mkdir(parents=True)
        for part in (folder, folder / "pub", *folder.parents[:3]):
            os.chown(part, server.uid, -1)
        (folder / "pub" / "allocation.json").write_text('{"version":1}')
        os.seteuid(server.uid)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.seteuid(0)
        answer, said = os.pipe()
        words_fd = launch(argv, {"PATH": os.defpath, **env})
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        fds = [lock, said, words_fd, null]
        try:
            got = box.ask(
                Verb.START, attempt=attempt, owner=owner, walls=walls, fds=fds, cwd=cwd, folder=str(folder),
                grace=words.pop("grace", 2000), log_max=2**20, log_keep=1, **words,
            )  # fmt: skip
        finally:
            for fd in fds:
                os.close(fd)
        self.pidfd, self.supervisor = got.fds[0], got.pid
        with open(answer) as file:
            self.said = file.read().strip()

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def end(self) -> dict:
        path = self.folder / "exit.json"
        until(path.exists, f"{self.id} ends: {self.box.journal()[-2000:]}")
        return json.loads(path.read_text())

    def output(self) -> str:
        self.end()
        return self.log()

    def pids(self) -> set[int]:
        name = f"{self.box.tag}/user-{self.owner.uid}/{self.id.workload}.{self.id.task}.{self.id.number}"
        return members(name)

    def stop(self):
        return self.box.ask(Verb.SIGNAL, attempt=self.id, owner=self.owner, flags=END)
