"""A real account that a test makes and that goes with it, and work that is done as its user."""

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
    """A process of ours that became another user. What it writes to its pipe is what a test reads."""

    pid: int
    pipe: int
    said: bytes = field(default=b"")

    def until(self, mark: bytes) -> None:
        """Read until it has said that."""
        while mark not in self.said:
            piece = os.read(self.pipe, 65536)
            assert piece, f"it ended after {self.said!r}"
            self.said += piece

    def end(self) -> bytes:
        """Kill it; all that it said."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pid = 0
        while piece := os.read(self.pipe, 65536):
            self.said += piece
        os.close(self.pipe)
        return self.said


@contextmanager
def account(name: str) -> Iterator[pwd.struct_passwd]:
    """A user of this machine, by a name that no other test has."""
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
    """`work` in a process of that user, given the pipe to write to; killed at the end."""
    reads, writes = os.pipe()
    with warnings.catch_warnings():  # a newer Python warns of other threads, as the test runner has them
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
