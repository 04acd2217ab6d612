"""Walls between jobs: an attack for each, tried as a user."""

import os
import pwd
import re
import signal
import subprocess
from contextlib import suppress

import pytest

from pliant.devices.strays import Strays
from pliant.engines.local.launch.warden import Refused, Verb, Walls, launch
from pliant.engines.local.observe.processes import started
from pliant.model.workload import AttemptId
from tests.box.box_rig import PYTHON, Box, group_file, members, trees, until
from tests.box.test_warden import FULL, ZERO, live
from tests.house.gaps import gap

MIB = 2**20


def test_a_hog_is_ended_at_its_limit_and_named(box):
    neighbour = live(box, box.bob)
    hog = box.run(
        box.alice,
        [PYTHON, "-S", "-c", "b = bytearray(1 << 30); b[::4096] = b'x' * len(b[::4096])"],
        walls=Walls(memory=64 * MIB),
    )
    assert hog.end()["signal"] == signal.SIGKILL
    facts = hog.stop()
    assert facts.oom >= 1 and facts.limit == 64 * MIB and 32 * MIB < facts.peak <= 64 * MIB
    assert neighbour.pids() and os.path.exists(f"/proc/{neighbour.supervisor}")
    neighbour.stop()


def test_sigkill_by_hand_is_no_want_of_memory(box):
    task = live(box, box.alice, walls=Walls(memory=64 * MIB))
    for pid in task.pids():
        os.kill(pid, signal.SIGKILL)
    assert task.end()["signal"] == signal.SIGKILL
    assert task.stop().oom == 0


def test_shared_memory_counts_as_the_jobs(box):
    script = "head -c 256M /dev/urandom > /dev/shm/big; echo left"
    hog = box.shell(box.alice, script, walls=Walls(memory=64 * MIB))
    hog.end()
    assert hog.stop().oom >= 1


def test_a_job_that_goes_on_to_fork_although_it_may_not_is_ended(box):
    """Its supervisor ends it; a job that is refused a fork now and then lives on."""
    fork = "import os\ndef fork():\n try: return os.fork()\n except BlockingIOError: return -1\n"
    fill = f"{fork}while (pid := fork()) > 0: pass\nif pid == 0:\n import signal; signal.pause()\n"
    few = "for _ in range(500): fork()\nprint('lives', flush=True)\nimport signal; signal.pause()"
    many = "while True: fork()"
    calm, bomb = (
        box.run(box.alice, [PYTHON, "-S", "-c", fill + end], walls=Walls(processes=20)) for end in (few, many)
    )
    record = bomb.end()
    assert record["signal"] == signal.SIGKILL and record["killed"] and not record["stopped"], record
    assert "processes that it may not have were refused within 10 s" in bomb.log()
    until(lambda: not bomb.pids(), "nothing of it is left")
    until(lambda: "lives" in calm.log(), "the other goes on")
    assert len(calm.pids()) == 20
    calm.stop()


def test_a_fork_bomb_stays_in_its_job(box):
    bomb = box.shell(box.alice, "f() { f | f & }; f; sleep 100000", walls=Walls(processes=60))
    group = group_file(f"{box.tag}/user-*/{bomb.id.workload}.*/pids.max").parent
    until(lambda: (group / "pids.events").read_text() != "max 0\n", "it is at its limit")
    assert int((group / "pids.current").read_text()) <= 60
    assert box.shell(box.bob, "echo fine").output() == "fine\n"
    bomb.stop()
    assert not bomb.pids()
    until((bomb.folder / "exit.json").exists, "its supervisor writes the end")


def test_who_runs_many_processes_gets_no_more_of_a_processor(box):
    """Equal requests on one core: sixteen busy sessions of bob get as much as one of alice."""
    loop = "while :; do :; done"
    busy = f"i=1; while [ $i -lt {{}} ]; do setsid /bin/sh -c '{loop}' & i=$((i+1)); done; {loop}"
    core = str(min(os.sched_getaffinity(0)))
    tasks = [
        box.run(owner, ["taskset", "-c", core, "/bin/sh", "-c", busy.format(count)], walls=Walls(cpu=1000))
        for owner, count in ((box.alice, 1), (box.bob, 16))
    ]
    until(lambda: len(tasks[1].pids()) == 16, "all of bob's run")
    before = [used(task) for task in tasks]
    until(lambda: sum(map(used, tasks)) > sum(before) + 3 * 10**6, "3 s of the core were used")
    alice, bob = (used(task) - was for task, was in zip(tasks, before, strict=True))
    assert 1 / 2 < bob / alice < 2, (alice, bob)
    for task in tasks:
        task.stop()


def used(task):
    """Microseconds of processor time, from the tree of the second version."""
    place = f"{task.box.tag}/user-{task.owner.uid}/{task.id.workload}.*/cpu.stat"
    lines = (file.read_text().split() for tree in trees() for file in tree.glob(place))
    return next(int(words[1]) for words in lines if words[0] == "usage_usec")


@pytest.fixture(scope="module")
def own():
    if len(os.sched_getaffinity(0)) < 2:
        gap("one core", "run the tests on a machine of two: one is to be a job's own")
    made = Box("own")
    try:
        made.make()
        made.write_config("cpu cores\n")
        made.start()
        yield made
    finally:
        made.clean()


def cores(task):
    """The cores on which all its processes may run; waits until it has a process."""
    found = set()
    for pid in until(task.pids, "it runs"):
        with suppress(FileNotFoundError):
            found.add(frozenset(os.sched_getaffinity(pid)))
    (one,) = found
    return one


def test_whole_cores_are_a_jobs_own(own):
    """A job that asks for none, or for half a core, runs on the other cores, whichever job came first."""
    every = os.sched_getaffinity(0)
    before = live(own, own.bob)
    assert cores(before) == every
    task = live(own, own.alice, walls=Walls(cpu=1000))
    after = live(own, own.bob, walls=Walls(cpu=500))
    assert len(cores(task)) == 1
    assert cores(before) == cores(after) == every - cores(task)
    own.kill()
    own.start()
    later = live(own, own.bob)
    assert cores(later) == every - cores(task), "another warden knows whose they are"
    own.ask(Verb.LIMITS, attempt=task.id, owner=own.alice, walls=Walls(cpu=1500))
    assert cores(task) == cores(before) == every, "no whole cores, none of its own"
    own.ask(Verb.LIMITS, attempt=task.id, owner=own.alice, walls=Walls(cpu=1000))
    assert cores(before) == every - cores(task)
    task.stop()
    assert cores(before) == cores(after) == cores(later) == every
    for one in (before, after, later):
        one.stop()


def test_a_job_stays_on_its_cores(own):
    rest = live(own, own.bob)
    widen = "import os, time; os.sched_setaffinity(0, range(os.cpu_count())); print('wide', flush=True)"
    task = own.run(own.alice, [PYTHON, "-S", "-c", f"{widen}; time.sleep(100000)"], walls=Walls(cpu=1000))
    until(lambda: "wide" in task.log(), "it has asked for all")
    assert len(cores(task)) == 1
    status, text = own.execute(task, ["sh", "-c", "grep Cpus_allowed_list /proc/self/status"])
    assert status == 0 and {int(text.split()[-1])} == cores(task)
    task.stop()
    rest.stop()


def test_more_cores_than_there_are_start_nothing(own):
    one = live(own, own.bob, walls=Walls(cpu=1000))
    many = len(os.sched_getaffinity(0))
    with pytest.raises(Refused, match=f"asks for {many} cores of its own, and {many - 1} are free"):
        live(own, own.alice, walls=Walls(cpu=1000 * many))
    assert [group.uid for group in own.groups()] == [own.bob.uid]
    one.stop()
    all_of_them = live(own, own.alice, walls=Walls(cpu=1000 * many))
    rest = live(own, own.bob)
    assert cores(all_of_them) == cores(rest), "where nothing is left, all are shared"
    all_of_them.stop()
    rest.stop()


def test_cores_are_shared_where_nothing_else_is_said(box):
    task = live(box, box.alice, walls=Walls(cpu=1000))
    assert cores(task) == os.sched_getaffinity(0)
    task.stop()


@pytest.mark.parametrize("how", ["cgroup.kill", "freezer"])
def test_what_hides_ends_with_its_job(box, how, request):
    task = box.shell(
        box.alice,
        "(env -i setsid sh -c 'env -i setsid sleep 100000 & exit' &) ; echo ready; exec sleep 100000",
    )
    until(lambda: "ready" in task.log() and len(task.pids()) >= 2, "it hides")
    if how == "freezer":  # as on a machine with the first version only
        os.chmod(group_file(f"{box.tag}/user-*/{task.id.workload}.*/cgroup.kill"), 0)
    task.stop()
    assert not task.pids()
    assert box.facts(task.id) is None


RUNNERS = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        while True:
            try:
                if os.fork(): os._exit(0)
            except BlockingIOError:
                pass
print("running", flush=True)
while True: signal.pause()
"""
"""Each process keeps replacing itself: killing the pids one sees comes too late, or takes long."""


def test_a_supervisor_ends_the_whole_group_at_once(box):
    """Also a process that the task did not start: a command inside the task left it there."""
    task = box.run(box.alice, [PYTHON, "-S", "-c", RUNNERS], grace=200)
    until(lambda: "running" in task.log(), "they run")
    left = "setsid sleep 100000 >/dev/null 2>&1 </dev/null & echo $!"
    pid = int(box.execute(task, ["/bin/sh", "-c", left])[1])
    assert pid in task.pids()
    os.kill(task.supervisor, signal.SIGTERM)
    assert task.end()["killed"]
    until(lambda: not task.pids(), "nothing is left")


def opened(text):
    return re.findall(r"(?m)^(\w+) open$", text)


def opens(*names):
    return "; ".join(f"(: < /dev/{name}) 2>&1 && echo {name} open" for name in names)


def test_a_job_opens_the_cards_that_it_has(box):
    script = f"export CUDA_VISIBLE_DEVICES=0,1; {opens('full', 'zero', 'null', 'urandom')}"
    one = box.shell(box.alice, script, walls=Walls(devices=(ZERO,))).output()
    assert opened(one) == ["zero", "null", "urandom"]
    assert "Operation not permitted" in one
    none = box.shell(box.bob, script).output()
    assert opened(none) == ["null", "urandom"]
    both = box.shell(box.bob, script, walls=Walls(devices=(ZERO, FULL))).output()
    assert opened(both) == ["full", "zero", "null", "urandom"]


def test_other_devices_are_shut(box):
    text = box.shell(box.alice, opens("mem", "kmsg", "fuse", "kvm", "loop-control")).output()
    assert not opened(text)


def test_a_job_that_shrinks_loses_the_card(box):
    script = (
        "exec 9< /dev/full; echo ready;"
        " while :; do (: < /dev/full) 2>/dev/null && echo open || echo shut; sleep 0.05; done"
    )
    task = box.shell(box.alice, script, walls=Walls(devices=(ZERO, FULL)))
    until(lambda: "open" in task.log(), "it has both")
    box.ask(Verb.LIMITS, attempt=task.id, owner=box.alice, walls=Walls(devices=(ZERO,)))
    until(lambda: task.log().rstrip().endswith("shut"), "new opens are refused")

    def holds():
        for pid in task.pids():  # a sleep of the loop may be gone by now
            with suppress(FileNotFoundError):
                return os.readlink(f"/proc/{pid}/fd/9")
        return ""

    until(lambda: holds() == "/dev/full", "what was open stays so: the card is not free yet")
    task.stop()


def test_a_limit_that_is_changed_holds(box):
    task = live(box, box.alice, walls=Walls(memory=256 * MIB, processes=50))
    box.ask(Verb.LIMITS, attempt=task.id, owner=box.alice, walls=Walls(memory=64 * MIB, processes=20))
    assert box.facts(task.id).limit == 64 * MIB
    box.ask(Verb.LIMITS, attempt=task.id, owner=box.alice, walls=Walls(memory=512 * MIB, processes=20))
    assert box.facts(task.id).limit == 512 * MIB
    task.stop()


def test_a_user_cannot_change_a_group(box):
    group = " ".join(f"{tree}/{box.tag}/user-$(id -u)/*" for tree in trees())
    text = box.shell(
        box.alice,
        f"for d in {group}; do echo $$ > $d/../../cgroup.procs; mkdir $d/mine; echo max > $d/pids.max;"
        " echo -1 > $d/memory.limit_in_bytes; done 2>&1; unshare -m echo made; echo over",
    ).output()
    assert text.count("Permission denied") >= 4
    assert text.endswith("over\n") and "made" not in text


# ---- which part dies and what lives on ----


def test_jobs_outlive_the_warden(box):
    task = live(box, box.alice, walls=Walls(memory=64 * MIB, devices=(ZERO,)))
    box.kill()
    assert task.pids() and os.path.exists(f"/proc/{task.supervisor}")
    box.start()
    group = box.facts(task.id)
    assert (group.populated, group.limit) == (True, 64 * MIB)
    _, text = box.execute(task, ["/bin/sh", "-c", opens("full", "zero")])
    assert opened(text) == ["zero"]
    task.stop()
    assert not task.pids() and box.facts(task.id) is None


def test_a_command_inside_outlives_the_warden_and_hinders_no_other(box):
    task = live(box, box.alice)
    null, words = os.open("/dev/null", os.O_RDWR), launch(["/bin/sleep", "100000"], {})
    got = box.ask(Verb.EXEC, attempt=task.id, owner=task.owner, fds=(null, null, words), cwd="/", keep=True)
    box.kill()
    box.start()
    assert len(task.pids()) == 2
    got.connection.close()
    until(lambda: len(task.pids()) == 1, "it is ended by the child that waits for it")
    task.stop()


def test_a_supervisor_that_is_killed_leaves_nothing_behind(box):
    task = live(box, box.alice)
    os.kill(task.supervisor, signal.SIGKILL)
    task.stop()
    assert not task.pids() and box.facts(task.id) is None
    assert not (task.folder / "exit.json").exists()


def test_the_server_can_end_a_job_while_the_warden_is_away(box):
    task = live(box, box.alice)
    box.kill()
    file = group_file(f"{box.tag}/user-*/{task.id.workload}.*/cgroup.kill")
    for who, done in ((box.bob, 2), (box.server, 0)):
        ids = pwd.getpwnam(who.name)
        shell = subprocess.run(
            ["/bin/sh", "-c", f"echo 1 > {file}"], user=ids.pw_uid, group=ids.pw_gid, extra_groups=[],
            capture_output=True, cwd="/", check=False,
        )  # fmt: skip
        assert shell.returncode == done, shell
    until(lambda: not task.pids(), "it ends")
    box.start()
    task.stop()


def test_a_task_without_a_supervisor_does_not_begin(box):
    """The supervisor refuses, as for an attempt that has ended: the forked task exits before its command."""
    attempt = box.attempt()
    folder = box.base / "attempts" / attempt.workload / attempt.task / "1"
    folder.mkdir(parents=True)
    (folder / "exit.json").write_text("{}")
    note = box.base / "home-a" / "begun"
    task = box.shell(box.alice, f"touch {note}", attempt=attempt)
    assert task.said.startswith("error") and "exit.json exists" in task.said
    until(lambda: not members(box.tag) or not task.pids(), "nothing of it is left")
    assert not note.exists()
    task.stop()


# ---- strays ----


@pytest.fixture(scope="module")
def strict():
    made = Box("stray")
    try:
        made.make()
        made.write_config("strays stop\n")
        made.start()
        yield made
    finally:
        made.clean()


def stray(owner, path, script="sleep 100000"):
    return subprocess.Popen(
        ["/bin/sh", "-c", f"exec 9< {path}; echo; exec {script}"], user=owner.uid, group=owner.uid,
        extra_groups=[], stdout=subprocess.PIPE, cwd="/",
    )  # fmt: skip


def end_stray(box, pid, *, number=signal.SIGTERM, start=None):
    words = {"attempt": AttemptId("", "", pid), "signal": number}
    return words | {"walls": Walls(processes=started(pid) if start is None else start)}


def test_strays_are_left_alone_unless_configured(box, strict):
    process = stray(box.bob, "/dev/full")
    process.stdout.read(1)
    try:
        assert "left alone" in box.refused(Verb.STRAY, **end_stray(box, process.pid))
        for start in (1, 2**40):  # ticks since boot: a machine that was up for 12 hours is at 4,320,000
            text = strict.refused(Verb.STRAY, **end_stray(strict, process.pid, start=start))
            assert "another one now" in text
        strict.ask(Verb.STRAY, **end_stray(strict, process.pid))
        assert process.wait(120) == -signal.SIGTERM
    finally:
        process.kill()
        process.communicate()


def test_the_server_sees_a_stray_twice_and_the_warden_ends_it(strict):
    process, system = stray(strict.bob, "/dev/full"), stray(strict.server, "/dev/zero")
    process.stdout.read(1)
    system.stdout.read(1)
    on = {"GPU-0": {process.pid: 1, system.pid: 2}}
    gate = strict.warden

    def end(pid, start, number):
        os.seteuid(strict.server.uid)
        try:
            gate.end_stray(strict.epoch, pid, start, number)
        finally:
            os.seteuid(0)

    strays = Strays(lambda: on, lambda pid: None, started, end)
    try:
        strays.look()
        strays.look()
        assert {(one.user, one.uid) for one in strays.found} == {
            (owner.name, owner.uid) for owner in (strict.bob, strict.server)
        }
        assert process.wait(120) == -signal.SIGTERM
        assert system.poll() is None, "accounts of the system are spared"
    finally:
        for one in (process, system):
            one.kill()
            one.communicate()


def test_who_holds_no_card_and_who_is_the_system_is_no_stray(strict):
    process = stray(strict.bob, "/dev/null")
    process.stdout.read(1)
    try:
        assert "holds no card" in strict.refused(Verb.STRAY, **end_stray(strict, process.pid))
        assert "is of uid 0" in strict.refused(Verb.STRAY, **end_stray(strict, 1))
    finally:
        process.kill()
        process.communicate()
    task = live(strict, strict.bob, "exec 9< /dev/full", walls=Walls(devices=(FULL,)))
    assert "belongs to a job" in strict.refused(Verb.STRAY, **end_stray(strict, next(iter(task.pids()))))
    task.stop()
