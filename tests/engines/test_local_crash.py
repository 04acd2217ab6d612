"""`kill -9` and SIGSTOP of servers and supervisors at every point. The truth is in /proc and in a file."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pliant.engines.local import living
from pliant.engines.local.observe import processes as looks
from pliant.model.fact import AttemptEnded, AttemptStarted
from pliant.model.workload import Attempt, AttemptId
from tests.engines.contract import A, B, place
from tests.engines.local_rig import SECONDS, LocalRig, kill, processes, until

ROOT = Path(__file__).resolve().parents[2]
AGAIN = AttemptId(A.workload, A.task, 2)


class Server:
    """Another server on the rig's state folder, which gets a signal at a point."""

    def __init__(self, rig, orders, *, point, number=signal.SIGKILL, epoch=1, known=()):
        self.lines = []
        task = {
            "state": str(rig.state),
            "supervisor": list(rig.options["supervisor"]),
            "point": point,
            "signal": int(number),
            "epoch": epoch,
            "known": [str(attempt) for attempt in known],
            "orders": [
                {"kind": kind, "attempt": str(attempt), "script": script} for kind, attempt, script in orders
            ],
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.engines.crashing_server"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.process.stdin.write(json.dumps(task))
        self.process.stdin.close()

    def until_said(self, word):
        for line in self.process.stdout:
            self.lines.append(line.strip())
            if self.lines[-1].startswith(word):
                return
        raise AssertionError(f"the server never said {word!r}, only {self.lines}")

    def stopped(self):
        """True while SIGSTOP holds it."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    def died(self):
        assert self.process.wait(SECONDS) == -signal.SIGKILL

    def clean(self):
        self.process.kill()
        self.process.wait(SECONDS)
        self.process.stdout.close()


@pytest.fixture
def rig(tmp_path):
    rig = LocalRig(tmp_path)
    rig.engine = None
    rig.servers = []
    yield rig
    for server in rig.servers:
        server.clean()
    if rig.engine is None:
        rig.engine = rig.make()
    rig.clean()


def serve(rig, orders, **options):
    server = Server(rig, orders, **options)
    rig.servers.append(server)
    return server


def know(rig, *every):
    for attempt in every:
        rig.known[attempt] = Attempt(attempt, place(0), 1, "decision-1", 0)


def script(rig, rest="exec sleep 1000"):
    return f'echo "$PLIANT_ATTEMPT" >> {rig.notes}; {rest}'


@pytest.mark.parametrize("point", ["ordered", "claimed", "forked"])
def test_the_server_dies_while_it_starts_a_task(rig, point):
    server = serve(rig, [("start", A, script(rig))], point=point)
    server.died()
    if point == "forked":
        until(lambda: rig.begun(A), "the supervisor goes on alone")
    know(rig, A)
    rig.open()
    if point == "ordered":
        assert len(rig.facts) == 1, "an attempt that was never claimed is not mentioned"
        rig.run(A, rig.forever())
    elif point == "claimed":
        assert rig.end(A).lost
        rig.start(A, rig.forever())
        rig.until(lambda: len(rig.ends(A)) == 2, "its start is answered by its end")
        assert rig.begun(A) == 0
        rig.run(AGAIN, rig.forever())
        return
    else:
        rig.until(lambda: rig.started(A), "it is adopted")
        rig.start(A, rig.forever())
    rig.stop(A)
    assert rig.end(A).stopped
    assert rig.begun(A) == 1


@pytest.mark.parametrize("point", ["stop-ordered", "stop-signalled"])
def test_the_server_dies_while_it_stops_a_task(rig, point):
    server = serve(rig, [("start", A, script(rig))], point="never")
    server.until_said("fact AttemptStarted")
    server.clean()
    know(rig, A)
    server = serve(rig, [("stop", A, "")], point=point, known=[A])
    server.died()
    rig.open()  # no new order: the accepted stop is carried out
    assert rig.end(A).stopped
    assert rig.begun(A) == 1


def test_the_server_dies_while_it_stops_what_was_never_begun(rig):
    server = serve(rig, [("stop", A, "")], point="stop-ordered")
    server.died()
    know(rig, A)
    rig.open()
    rig.stop(A)
    assert rig.end(A).stopped
    assert rig.begun(A) == 0


@pytest.mark.parametrize("point", ["exited", "reported"])
def test_the_server_dies_when_a_task_ends(rig, point):
    server = serve(rig, [("start", A, script(rig, "exit 6"))], point=point)
    server.died()
    know(rig, A)
    rig.open()
    assert rig.end(A).code == 6
    assert rig.begun(A) == 1


def test_a_stopped_server_wakes_after_another_has_taken_over(rig):
    """It was stopped before its claim: the server that claims decides."""
    server = serve(rig, [("start", A, script(rig))], point="ordered", number=signal.SIGSTOP)
    server.until_said("point")
    until(server.stopped, "it is stopped")
    know(rig, A)
    rig.epoch = 2
    rig.open()
    rig.run(A, rig.forever())
    kill(server.process.pid, signal.SIGCONT)
    serve_next = serve(rig, [("start", B, script(rig))], point="never", epoch=2, known=[A])
    serve_next.until_said("fact AttemptStarted")  # gives the woken one time to do damage
    assert rig.begun(A) == 1 and not rig.ends(A)


def test_a_server_that_was_stopped_with_its_claim_is_waited_for(rig):
    """It may continue and fork at any moment."""
    server = serve(rig, [("start", A, script(rig))], point="claimed", number=signal.SIGSTOP)
    server.until_said("point")
    until(server.stopped, "it is stopped")
    know(rig, A)
    rig.epoch = 2
    rig.open()
    rig.until(lambda: rig.started(A), "it counts as alive")
    rig.stop(A)
    kill(server.process.pid, signal.SIGCONT)
    assert rig.end(A).stopped, "the stop reaches the supervisor that was forked late"
    assert rig.begun(A) <= 1


def test_a_server_that_hangs_with_its_claim_is_passed_over(rig, monkeypatch):
    """If its supervisor ever starts, it finds the attempt ended."""
    monkeypatch.setattr(living, "HUNG_SECONDS", 0.5)
    server = serve(rig, [("start", A, script(rig))], point="claimed", number=signal.SIGSTOP)
    server.until_said("point")
    until(server.stopped, "it is stopped")
    know(rig, A)
    rig.epoch = 2
    rig.open()
    assert rig.end(A).lost
    rig.run(AGAIN, rig.forever())
    kill(server.process.pid, signal.SIGCONT)
    until(lambda: not locked(rig.folder(A)), "the woken server has let go")
    rig.start(A, rig.forever())
    rig.until(lambda: len(rig.ends(A)) == 2, "it stays ended")
    assert rig.begun(A) == 0 and rig.ends(A)[0] == rig.ends(A)[1]


def locked(folder):
    command = ["flock", "--nonblock", "--shared", str(folder / "lock"), "true"]
    return subprocess.run(command, check=False).returncode != 0


def test_a_hung_server_with_a_lock_but_no_claim_is_passed_over(rig):
    rig.open()
    folder = rig.folder(A)
    folder.mkdir(parents=True)
    holder = subprocess.Popen(
        ["flock", str(folder / "lock"), sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        holder.stdout.readline()
        rig.start(A, rig.forever())
        assert rig.end(A).lost
        assert rig.begun(A) == 0
    finally:
        holder.communicate(b"\n", timeout=SECONDS)
    rig.start(A, rig.forever())
    rig.until(lambda: len(rig.ends(A)) == 2, "it stays ended")
    rig.run(AGAIN, rig.forever())


LEAVES_CHILDREN = """
sleep 1000 &
setsid sleep 1000 < /dev/null > /dev/null 2>&1 &
setsid sh -c 'trap "" TERM HUP; sleep 1000 & exec sleep 1000' &
"""


def test_a_dead_supervisor_leaves_nothing(rig):
    rig.open()
    rig.run(A, rig.shell(f"{LEAVES_CHILDREN} exec sleep 1000"))
    rig.until(lambda: len(processes(rig.state, A)) >= 6, "they all run")
    kill(rig.supervisor_of(A))
    assert rig.end(A).lost  # the rig checks that nothing lives when it is said
    assert rig.begun(A) == 1


def test_what_exec_started_ends_with_the_task(rig):
    rig.open()
    rig.run(A, rig.exits(0))
    session = rig.engine.exec(A, ["sleep", "1000"], tty=False, stdin=False, rows=0, columns=0)
    rig.finish(A)
    assert rig.end(A).succeeded  # the rig checks that nothing lives when it is said
    rig.until(lambda: session.exit_code() is not None, "the command has ended, too")


def test_where_the_supervisor_saw_the_last_of_it_end_nobody_looks_at_every_process(rig, monkeypatch):
    looked = []
    monkeypatch.setattr(living, "SWEEP_SECONDS", 3600.0)
    monkeypatch.setattr(looks, "environment", lambda pid: looked.append(pid) or b"")
    rig.open()
    looked.clear()
    rig.run(A, rig.exits(0))
    rig.finish(A)
    rig.end(A)
    assert not looked


def test_what_copied_a_tasks_environment_ends_soon_after_it(rig, monkeypatch):
    rig.open()
    rig.run(A, rig.exits(0))
    env = {**os.environ, "PLIANT_ATTEMPT": str(A), "PLIANT_ATTEMPT_DIR": str(rig.folder(A))}
    stray = subprocess.Popen(["sleep", "1000"], env=env)
    try:
        monkeypatch.setattr(rig, "alive", lambda attempt: False)  # the end comes before the stray's
        rig.finish(A)
        rig.end(A)
        assert stray.wait(SECONDS) == -signal.SIGKILL
    finally:
        stray.kill()
        stray.wait(SECONDS)


def test_supervisor_and_server_die_together(rig):
    server = serve(rig, [("start", A, script(rig, f"{LEAVES_CHILDREN} exec sleep 1000"))], point="never")
    server.until_said("fact AttemptStarted")
    until(lambda: len(processes(rig.state, A)) >= 6, "they all run")
    server.clean()
    kill(rig.supervisor_of(A))
    know(rig, A)
    rig.open()
    assert rig.end(A).lost
    assert processes(rig.state) == []
    rig.run(AGAIN, rig.forever())


def test_leftovers_of_an_earlier_attempt_end_before_the_next_one_starts(rig):
    rig.open()
    rig.run(A, rig.exits(0))
    rig.finish(A)
    rig.end(A)
    env = {**os.environ, "PLIANT_ATTEMPT": str(A), "PLIANT_ATTEMPT_DIR": str(rig.folder(A))}
    leftover = subprocess.Popen(["sleep", "1000"], env=env)
    try:
        until(lambda: processes(rig.state, A), "it runs")
        rig.start(AGAIN, rig.forever())
        rig.until(lambda: rig.started(AGAIN), "the next one starts")
        assert processes(rig.state, A) == []
        assert leftover.wait(SECONDS) == -signal.SIGKILL
    finally:
        leftover.kill()
        leftover.wait(SECONDS)


def test_after_a_reboot_nothing_lives(rig):
    rig.open()
    rig.run(A, rig.forever())
    rig.drop()
    (rig.state / "boot_id").write_text("another boot\n")
    rig.open()
    assert rig.end(A).lost
    assert not rig.started(A)
    rig.run(AGAIN, rig.forever())
    rig.drop()
    rig.known = {AGAIN: rig.known[AGAIN]}
    rig.open()
    rig.until(lambda: rig.started(AGAIN), "the boot is known now")


def test_another_process_with_the_number_of_a_dead_supervisor_is_left_alone(rig):
    rig.open()
    rig.run(A, rig.forever())
    rig.drop()
    lock = rig.folder(A) / "lock"
    says = json.loads(lock.read_text())
    rig.destroy(A)
    bystander = subprocess.Popen(["sleep", "1000"])
    try:
        lock.write_text(json.dumps({**says, "pid": bystander.pid}))
        rig.open()
        assert rig.end(A).lost
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait(SECONDS)


def test_servers_and_supervisors_die_at_any_time(rig):
    """Kills at scattered times: every attempt runs at most once, and the last server knows the truth."""
    every = [AttemptId(f"w-{number}", "worker-0", 1) for number in range(12)]
    orders = [("start", attempt, script(rig)) for attempt in every]
    for round_number in range(6):
        server = serve(rig, orders, point="never", known=every if round_number else ())
        if round_number:
            server.until_said("fact NodeSeen")
        else:
            server.until_said("fact AttemptStarted")
            victim = until(lambda: next(filter(rig.begun, every), None), "one of them runs")
        time.sleep(0.002 * round_number)  # when it dies; the assertions hold at any time
        server.clean()
        if round_number == 3:
            kill(rig.supervisor_of(victim))
    know(rig, *every)
    rig.open()
    for attempt in every:
        rig.start(attempt, rig.forever())
    about = (AttemptStarted, AttemptEnded)
    rig.until(
        lambda: {fact.attempt for fact in rig.facts if isinstance(fact, about)} == set(every),
        "all are known",
    )
    assert rig.end(victim).lost
    for attempt in every:
        rig.until(
            lambda attempt=attempt: rig.ends(attempt) or rig.begun(attempt), "what is reported to run does"
        )
        assert rig.begun(attempt) <= 1
        assert rig.alive(attempt) != bool(rig.ends(attempt))
