"""Makes a real account for a test, removed at its end, and runs work as that user."""

import grp
import os
import pwd
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.box.box_rig import accounts
from tests.house.gaps import gap


@dataclass
class Child:
    """A child process that became another user; the test reads what it writes to its pipe."""

    pid: int
    pipe: int
    said: bytes = field(default=b"")

    def until(self, mark: bytes) -> None:
        """Reads until the child has written that."""
        while mark not in self.said:
            piece = os.read(self.pipe, 65536)
            assert piece, f"it ended after {self.said!r}"
            self.said += piece

    def end(self) -> bytes:
        """Kills it; returns all that it wrote."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pid = 0
        while piece := os.read(self.pipe, 65536):
            self.said += piece
        os.close(self.pipe)
        return self.said


@contextmanager
def account(name: str) -> Iterator[pwd.struct_passwd]:
    """Makes a user of this machine with a name that no other test uses."""
    if os.geteuid() != 0:
        gap("no root", "run the tests as root: they make accounts")
    own = f"pl{os.getpid()}{name}"[:31]
    accounts("useradd", "--no-create-home", "--shell", "/bin/sh", own)
    try:
        yield pwd.getpwnam(own)
    finally:
        accounts("userdel", own)
        assert own not in {group.gr_name for group in grp.getgrall()}


@contextmanager
def acting(user: pwd.struct_passwd, work: Callable[[int], None]) -> Iterator[Child]:
    """Runs `work(pipe)` in a process of that user; killed at the end."""
    reads, writes = os.pipe()
    with warnings.catch_warnings():  # newer Pythons warn of forks beside threads; the test runner has some
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reads)
            os.setgroups([])
            os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
            os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
            work(writes)
            code = 0
        except BaseException as error:
            os.write(writes, f"failed: {error!r}".encode())
        finally:
            os._exit(code)
    os.close(writes)
    child = Child(pid, reads)
    try:
        yield child
    finally:
        if child.pid:
            child.end()
