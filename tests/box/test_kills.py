"""SIGKILL of each privileged part at every system call that it makes.

A program that runs as root has no named points: the test traces it and kills it as it enters its n-th call,
for every n. The real engine gives the order; what it reports of the attempt must agree with the kernel.
PLIANT_SEED chooses which calls `make test` takes.
"""

import ctypes
import os
import random
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from pliant.model.fact import AttemptResized
from pliant.model.order import Resize
from pliant.model.workload import AttemptId
from tests.box.box_rig import SECONDS, group_file, members, until
from tests.box.test_contract import box, rig  # noqa: F401 - fixtures
from tests.engines.contract import A, workload
from tests.house.seeds import seed_or

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long
CONT, DETACH, SYSCALL, EVENT, SEIZE, INTERRUPT = 7, 17, 24, 0x4201, 0x4206, 0x4207
CALLS, FORKS = 1, 2 | 4 | 8  # options: tell calls from signals; trace forked children as well
CALL, FORKED, STOPPED = signal.SIGTRAP | 0x80, (1, 2, 3), 128
WALL = 0x40000000
AGAIN = AttemptId(A.workload, A.task, 2)


def trace(request, pid, data=0):
    if LIBC.ptrace(request, pid, None, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Traced:
    """A traced process of one thread. `child` changes `pid`."""

    def __init__(self, pid):
        self.pid, self.stopped = pid, False
        trace(SEIZE, pid, CALLS | FORKS)

    def stop(self):
        """Stops a running process; the next order continues it."""
        trace(INTERRUPT, self.pid)
        assert self.wait() is not None, "it has ended"
        self.stopped = True

    def wait(self, done=lambda: False):
        """Waits for (signal, event) at which it stops; None if it has ended or `done()`."""
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                pid, status = os.waitpid(self.pid, WALL | os.WNOHANG)
            except ChildProcessError:  # the engine has waited for it
                return None
            if pid and os.WIFSTOPPED(status):
                return os.WSTOPSIG(status), status >> 16
            if pid or done():
                return None
            assert time.monotonic() < deadline, "it neither stops nor ends"
            time.sleep(0.0005)

    def newborn(self):
        """Pid of the child, which is stopped as well; the parent must be stopped at its fork."""
        told = ctypes.c_ulong()
        trace(EVENT, self.pid, ctypes.addressof(told))
        pid, _ = os.waitpid(told.value, WALL)
        return pid

    def child(self, number=1):
        """Traces its child of that number instead; detaches from the parent and from the other children."""
        while True:
            if self.stopped:
                trace(CONT, self.pid)
            self.stopped = True
            seen = self.wait()
            assert seen is not None, "it ended without a fork"
            _, event = seen
            if event not in FORKED:
                continue
            pid, number = self.newborn(), number - 1
            if number == 0:
                trace(DETACH, self.pid)
                self.pid = pid
                return
            trace(DETACH, pid)

    def killed_at(self, number, done):
        """True if it reached its call of that number; it was then killed as it entered it."""
        stops, given = 0, 0
        while True:
            trace(SYSCALL, self.pid, given)
            seen, given = self.wait(done), 0
            if seen is None:
                with suppress(OSError):  # it sleeps, or has ended
                    trace(INTERRUPT, self.pid)
                    self.wait()
                    trace(DETACH, self.pid)
                return False
            number_of_signal, event = seen
            if event in FORKED:
                trace(DETACH, self.newborn())
            elif number_of_signal == CALL:
                stops += 1
                if stops == 2 * number - 1:
                    os.kill(self.pid, signal.SIGKILL)
                    with suppress(ChildProcessError):
                        os.waitpid(self.pid, WALL)
                    return True
            elif event != STOPPED:
                given = number_of_signal


@pytest.fixture(autouse=True)
def nothing_stays_stopped(rig):  # noqa: F811
    """Restarts a warden that a failed test left traced."""
    yield
    if "TracerPid:\t0\n" not in Path(f"/proc/{rig.box.process.pid}/status").read_text():
        rig.box.kill()
        rig.box.start()


def capabilities(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("CapEff"):
            return int(line.split()[1], 16)
    raise AssertionError(pid)


def no_rights_are_left(it):
    """Tasks have no capability, supervisors only CAP_KILL; the warden and its orders are in no group."""
    for name, most in ((f"user-{it.box.alice.uid}", 0), ("supervisors", 1 << 5)):
        for pid in members(f"{it.box.tag}/{name}"):
            with suppress(FileNotFoundError, ProcessLookupError):
                assert capabilities(pid) & ~most == 0, (name, pid)


def nothing_lives(it):
    left = members(f"{it.box.tag}/user-{it.box.alice.uid}") | members(f"{it.box.tag}/supervisors")
    return not left


def settled(it):
    """The engine reports A as running or ended, the report is true, and the next attempt runs."""
    it.until(lambda: it.started(A) or it.ends(A), "the engine says what became of it")
    it.until(lambda: it.begun(A) or it.ends(A), "what is said to run does, or was killed before it began")
    if not it.ends(A):
        no_rights_are_left(it)
        it.stop(A)
    it.end(A)
    until(lambda: nothing_lives(it), "nothing of it is left")
    assert it.begun(A) <= 1
    it.run(AGAIN, it.forever())
    no_rights_are_left(it)
    it.stop(AGAIN)
    it.end(AGAIN)
    until(lambda: nothing_lives(it), "nothing of the next one is left")
    assert it.begun(AGAIN) == 1
    first, *more = it.ends(A)
    assert all(one == first for one in more), "who asks again is told the same"
    assert not it.box.groups()


def renewed(it):
    """Resets the rig: the next round uses the same names of attempts."""
    it.clean()
    again = it.state.with_name(f"state-{time.monotonic_ns()}")
    again.mkdir()
    it.state, it.facts, it.known = again, [], {}
    it.notes.write_text("")
    it.open()


START_PARTS = {"the order": 1, "the supervisor": 2, "the task": 3}
EVERY = 17
"""`make test` kills only at every 17th call, counted from one that the seed chooses."""
WAYS = [pytest.param(EVERY, id="some calls"), pytest.param(1, id="every call", marks=pytest.mark.long)]


def sweep(it, part, every, least, once):
    """`once` plays a round and returns True if the call of that number was reached; at least `least` are."""
    seed = seed_or(20261127)
    first = random.Random(f"{seed}{part}").randint(1, every)
    number = first
    while True:
        there = once(number)
        settled(it)
        renewed(it)
        if not there:
            break
        number += every
    kills = (number - first) // every
    print(f"PLIANT_SEED={seed}: {part} was killed at {kills} calls, the last was {number - every}")
    assert number > least, "it is traced"


@pytest.mark.parametrize("every", WAYS)
@pytest.mark.parametrize("part", START_PARTS)
def test_a_start(rig, part, every):  # noqa: F811
    def once(number):
        traced = Traced(rig.box.process.pid)
        rig.start(A, rig.forever())
        traced.child()
        for _ in range(START_PARTS[part] - 1):
            traced.child()
        return traced.killed_at(number, lambda: bool(rig.begun(A)))

    sweep(rig, f"{part} of a start", every, 40, once)


@pytest.mark.parametrize("every", WAYS)
def test_the_warden_itself(rig, every):  # noqa: F811
    """The warden's loop, which only forks: what it has forked lives on."""

    def once(number):
        traced = Traced(rig.box.process.pid)
        traced.stop()
        rig.start(A, rig.forever())
        there = traced.killed_at(number, lambda: bool(rig.begun(A)))
        if there:
            rig.box.process.wait()
            rig.box.start()
        return there

    sweep(rig, "the warden", min(every, 2), 3, once)


@pytest.mark.parametrize("every", WAYS)
@pytest.mark.parametrize(("order", "fork"), [("the look", 1), ("the end", 2)])
def test_an_end(rig, order, fork, every):  # noqa: F811
    """The engine's orders after the supervisor's end: list what lives, and end it."""

    def once(number):
        rig.run(A, rig.forever())
        traced = Traced(rig.box.process.pid)
        rig.stop(A)
        traced.child(fork)
        return traced.killed_at(number, lambda: bool(rig.ends(A)))

    sweep(rig, order, every, 20, once)


@pytest.mark.parametrize("every", WAYS)
def test_the_supervisor_on_its_way_to_the_end(rig, every):  # noqa: F811
    def once(number):
        rig.run(A, rig.forever())
        traced = Traced(rig.supervisor_of(A))
        traced.stop()
        rig.stop(A)
        return traced.killed_at(number, lambda: bool(rig.ends(A)))

    sweep(rig, "the supervisor at the end", every, 20, once)


def resized(it):
    return any(isinstance(fact, AttemptResized) and fact.attempt == A for fact in it.facts)


def opens(it, device):
    """True if a command inside the job can open the device."""
    inside = SimpleNamespace(id=A, owner=it.box.alice)
    status, _ = it.box.execute(inside, ["sh", "-c", f": < {device}"])
    return status == 0


@pytest.mark.parametrize("every", WAYS)
def test_other_limits(rig, every):  # noqa: F811
    """Between two calls each limit is the old or the new one, and the job stays behind all its walls."""

    def once(number):
        rig.run(A, rig.forever())
        rig.engine.register(A, rig.main(A))
        place = f"{rig.box.tag}/user-*/{A.workload}.*/pids.max"
        limit = group_file(place)
        new = limit.read_text()
        limit.write_text("77")  # as if the job had been started with it
        assert opens(rig, "/dev/null") and not opens(rig, "/dev/full")
        traced = Traced(rig.box.process.pid)
        rig.engine.resize(Resize(A, rig.place(0, 1), 10, "decision-3", rig.epoch))
        traced.child()
        there = traced.killed_at(number, lambda: resized(rig))
        assert group_file(place).read_text() in ("77\n", new)
        assert opens(rig, "/dev/null") and not opens(rig, "/dev/full")
        rig.until(lambda: resized(rig), "the engine asks again, and says what it has")
        assert group_file(place).read_text() == new
        return there

    sweep(rig, "other limits", every, 20, once)


def forget(it, errors):
    try:
        it.engine.forget(workload(A.workload, it.forever()))
    except OSError as error:
        errors.append(error)


@pytest.mark.parametrize("every", WAYS)
def test_the_end_of_a_workloads_folders(rig, every):  # noqa: F811
    """The next order removes what is left of them; the target of a link there stays."""
    kept = rig.box.base / "kept"
    kept.mkdir(exist_ok=True)
    (kept / "file").touch()
    os.chown(kept, rig.box.alice.uid, -1)
    os.chown(kept / "file", rig.box.alice.uid, -1)
    roots = [rig.box.base / "users", rig.box.base / "run" / "shm"]
    folders = [root / str(rig.box.alice.uid) / A.workload for root in roots]

    def once(number):
        rig.run(A, rig.forever())
        places = [*(folder / "deep" for folder in folders), folders[0] / "files" / "deep"]
        made = " && ".join(
            f"mkdir -p {it}/er && touch {it}/er/file && ln -s {kept} {it}/link" for it in places
        )
        setpriv = ["setpriv", "--reuid", str(rig.box.alice.uid), "--clear-groups"]
        subprocess.run([*setpriv, "sh", "-c", made], check=True)
        rig.stop(A)
        rig.end(A)
        until(lambda: nothing_lives(rig) and not rig.box.groups(), "nothing of it is left")
        errors, done = [], threading.Event()
        traced = Traced(rig.box.process.pid)
        asking = threading.Thread(target=lambda: (forget(rig, errors), done.set()))
        asking.start()
        traced.child()
        there = traced.killed_at(number, done.is_set)
        asking.join()
        assert (kept / "file").exists()
        while errors:  # as the next server repeats the order
            del errors[:]
            forget(rig, errors)
        assert not any(folder.exists() for folder in folders)
        assert (kept / "file").exists()
        return there

    sweep(rig, "the end of its folders", every, 20, once)


def run_inside(it, sessions):
    with suppress(OSError):  # the order was killed before it answered
        sessions.append(it.engine.exec(A, ["sleep", "100000"], tty=False, stdin=False, rows=0, columns=0))


def commands(pids):
    """Those of these processes that have become the command."""
    for pid in pids:
        with suppress(OSError):
            if b"100000" in Path(f"/proc/{pid}/cmdline").read_bytes():
                yield pid


@pytest.mark.parametrize("every", WAYS)
@pytest.mark.parametrize("part", ["the order", "the command"])
def test_a_command_inside_a_job(rig, part, every):  # noqa: F811
    """Kills the order that waits for the command, and the command itself while it drops root's rights."""

    def once(number):
        rig.run(A, rig.forever())
        before = rig.pids(A)
        sessions = []
        traced = Traced(rig.box.process.pid)
        asking = threading.Thread(target=run_inside, args=(rig, sessions))  # the main thread traces
        asking.start()
        traced.child()
        if part == "the command":
            traced.child()
        there = traced.killed_at(number, lambda: any(commands(rig.pids(A) - before)))
        asking.join()
        if there:
            until(lambda: rig.pids(A) == before, "nothing of the command is left")
        for session in sessions:
            session.kill()
        return there

    sweep(rig, f"{part} inside a job", every, 20, once)
