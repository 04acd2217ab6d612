"""Trouble around the local engine: disks, programs, folders of others, devices that change."""

import errno
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from pliant.control.ports import StaleEpoch
from pliant.engines.local import engine, living
from pliant.engines.local.folder import layout
from pliant.engines.local.folder.layout import Folder, Layout, LayoutError
from pliant.engines.local.launch import supervisor as launch
from pliant.model.fact import AttemptEnded, NodeSeen
from pliant.model.workload import AttemptId
from tests.engines.contract import GPUS, NODE, A, B
from tests.engines.local_rig import LocalRig, kill, supervisor, until


@pytest.fixture
def rig(tmp_path):
    rig = LocalRig(tmp_path)
    rig.open()
    yield rig
    rig.clean()


class FullDisk:
    """Makes every write to a file of that name fail."""

    def __init__(self, name):
        self.name, self.write = name, layout.write

    def __call__(self, path, data, *, durable=False):
        if path.name == self.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        self.write(path, data, durable=durable)


# ---- disks ----


@pytest.mark.parametrize("name", ["order.json", "allocation.json"])
def test_a_full_disk_before_the_claim(rig, monkeypatch, name):
    with monkeypatch.context() as patch:
        patch.setattr(layout, "write", FullDisk(name))
        order = rig.start(A, rig.forever())
        end = rig.end(A)
    assert "No space left on device" in end.error and name in end.error and not end.lost
    rig.engine.start(order)
    rig.until(lambda: len(rig.ends(A)) == 2, "room on the disk does not revive it")
    assert rig.ends(A)[1] == end and rig.begun(A) == 0
    rig.run(B, rig.forever())


def test_a_full_disk_at_the_claim(rig, monkeypatch):
    def claim(self, document):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "claim", claim)
        rig.start(A, rig.forever())
        assert "No space left on device" in rig.end(A).error
        rig.stop(B)
        assert rig.end(B).stopped, "what nobody ever started is stopped all the same"
    assert rig.begun(A) == rig.begun(B) == 0


def test_a_full_disk_does_not_keep_a_task_from_being_stopped(rig, monkeypatch):
    rig.run(A, rig.forever())
    monkeypatch.setattr(layout, "write", FullDisk("stop"))
    rig.stop(A)
    assert rig.end(A).stopped


def test_a_loss_that_cannot_be_recorded_is_reported(rig, monkeypatch):
    rig.run(A, rig.forever())
    monkeypatch.setattr(layout, "write", FullDisk("exit.json"))
    rig.destroy(A)
    assert rig.end(A).lost


def test_a_file_where_a_folder_should_be(rig):
    (rig.state / "attempts" / A.workload).write_text("")
    rig.start(A, rig.forever())
    assert "the attempt cannot be prepared" in rig.end(A).error
    rig.run(B, rig.forever())


def test_a_task_whose_folder_was_removed_is_stopped(rig):
    rig.run(A, rig.forever())
    shutil.rmtree(rig.folder(A))
    rig.stop(A, grace=100)
    assert rig.end(A).stopped and not rig.alive(A), "it is not reported ended while it lives"


def test_a_lost_task_whose_folder_was_replaced_is_reported(rig):
    rig.run(A, rig.forever())
    supervisor = rig.supervisor_of(A)
    shutil.rmtree(rig.folder(A))
    rig.folder(A).write_text("")
    kill(supervisor)
    assert rig.end(A).lost and not rig.alive(A)


# ---- descriptors ----


class Short:
    """Fails twice for want of a descriptor."""

    def __init__(self, call):
        self.call, self.left = call, 2

    def __call__(self, *given):
        if self.left:
            self.left -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self.call(*given)


def test_an_end_is_reported_once_a_descriptor_is_free(rig, monkeypatch):
    monkeypatch.setattr(living, "AGAIN_SECONDS", 0.01)
    rig.run(A, rig.exits(3))
    monkeypatch.setattr(layout, "read_json", Short(layout.read_json))
    rig.finish(A)
    assert rig.end(A).code == 3


def test_a_live_task_is_found_once_a_descriptor_is_free(rig, monkeypatch):
    monkeypatch.setattr(living, "AGAIN_SECONDS", 0.01)
    rig.run(A, rig.exits(3))
    rig.drop()
    monkeypatch.setattr(os, "pidfd_open", Short(os.pidfd_open))
    rig.open()
    rig.finish(A)
    assert rig.end(A).code == 3


def test_a_start_without_a_free_descriptor_leaves_none_open(rig, monkeypatch):
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "pidfd_open", Short(os.pidfd_open))
    rig.run(A, rig.exits(3))
    rig.finish(A)
    assert rig.end(A).code == 3
    until(lambda: len(os.listdir("/proc/self/fd")) <= before, "all are closed")


# ---- programs ----


def test_a_supervisor_that_cannot_be_executed(tmp_path):
    rig = LocalRig(tmp_path, ("/no/such/supervisor",))
    rig.open()
    try:
        rig.start(A, rig.forever())
        assert (
            "supervisor cannot be started" in rig.end(A).error and "/no/such/supervisor" in rig.end(A).error
        )
        rig.drop()
        rig.open()
        assert "/no/such/supervisor" in rig.end(A).error
    finally:
        rig.clean()


@pytest.mark.parametrize("program", ["/bin/true", "/bin/false"])
def test_a_supervisor_that_says_nothing(tmp_path, program):
    rig = LocalRig(tmp_path, (program,))
    rig.open()
    try:
        rig.start(A, rig.forever())
        assert rig.end(A).lost
    finally:
        rig.clean()


def test_a_supervisor_that_answers_too_late(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "READY_SECONDS", 0.1)
    slow = tmp_path / "slow"
    slow.write_text(f'#!/bin/sh\nsleep 0.5\nexec {supervisor("native")[0]} "$@"\n')
    slow.chmod(0o700)
    rig = LocalRig(tmp_path, (str(slow),))
    rig.open()
    try:
        rig.run(A, rig.exits(3))
        assert rig.started(A), "its task counts as running"
        rig.finish(A)
        assert rig.end(A).code == 3
    finally:
        rig.clean()


def test_no_descriptor_of_the_server_reaches_a_task(rig):
    with open("/dev/null") as file:
        os.set_inheritable(file.fileno(), True)
        rig.start(A, rig.shell("ls -l /proc/self/fd"))
        rig.end(A)
    shown = [line.split()[-3:] for line in rig.log(A).splitlines() if "->" in line]
    assert sorted(fd for fd, _, _ in shown) == ["0", "1", "2", "3"], "and 3 is the listing's own"
    assert shown[0][2] == "/dev/null"


def children():
    """Names of our children, zombies included."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            head, _, rest = Path(f"/proc/{name}/stat").read_text().rpartition(")")
            if int(rest.split()[1]) == os.getpid():
                found.append(head.partition("(")[2])
    return found


def test_many_tasks_leave_no_descriptors_and_no_zombies(rig):
    rig.run(A, rig.exits(0))
    rig.finish(A)
    rig.end(A)
    before = len(os.listdir("/proc/self/fd"))
    many = [AttemptId(f"w-{number}", "worker-0", 1) for number in range(20)]
    for attempt in many:
        rig.start(attempt, rig.shell("exit 0"))
    for attempt in many:
        assert rig.end(attempt).succeeded
    until(lambda: len(os.listdir("/proc/self/fd")) <= before, "all are closed")
    until(lambda: "pliant-superv" not in children(), "all were waited for")


# ---- folders ----


def test_a_state_folder_of_a_newer_release_is_refused(rig):
    rig.drop()
    version = rig.state / "attempts" / "VERSION"
    version.write_text("2\n")
    with pytest.raises(LayoutError) as caught:
        rig.open()
    assert str(version) in str(caught.value) and "newer release" in str(caught.value)
    version.write_text("1\n")
    rig.engine.close()
    rig.open()


def test_the_epoch_is_remembered(rig):
    rig.drop()
    rig.epoch = 7
    rig.open()
    rig.drop()
    rig.epoch = 6
    with pytest.raises(StaleEpoch, match="epoch 6 is over: 7 leads"):
        rig.open()
    rig.engine.close()
    assert Layout(rig.state).epoch() == 7
    rig.epoch = 7
    rig.open()


def test_forgotten_folders_go_even_if_the_server_dies_meanwhile(rig):
    rig.run(A, rig.exits(0))
    (rig.state / "checkpoints" / A.workload / "model").write_text("x")
    rig.finish(A)
    rig.end(A)
    rig.drop()
    Layout(rig.state).discard(A.workload)
    assert not rig.folder(A).exists()
    assert not (rig.state / "checkpoints" / A.workload).exists()
    assert len(list((rig.state / "attempts").glob(".trash-*"))) == 2
    rig.known.clear()
    rig.open()
    assert list((rig.state / "attempts").glob(".trash-*")) == []


def test_a_purge_deletes_logs_and_checkpoints(rig):
    row = replace(rig.run(A, rig.exits(0)).workload, purge=True)
    rig.finish(A)
    rig.end(A)
    rig.engine.forget(row)
    until(lambda: not list((rig.state / "attempts").glob(".trash-*")), "it is deleted")
    assert not rig.folder(A).parent.parent.exists()
    assert not (rig.state / "checkpoints" / A.workload).exists()


def test_the_same_attempt_of_another_state_folder_is_left_alone(rig, tmp_path):
    other = LocalRig(tmp_path / "other")
    other.open()
    try:
        other.run(A, other.forever())
        rig.run(A, rig.forever())
        rig.stop(A)
        rig.end(A)
        rig.drop()
        rig.open(known=False)
        assert other.alive(A) and not other.ends(A)
    finally:
        other.clean()


def test_two_servers_with_the_same_orders_start_each_once(rig):
    second, facts = rig.make(), []
    second.open(facts.append, [], rig.epoch)
    try:
        many = [AttemptId(f"w-{number}", "worker-0", 1) for number in range(10)]
        for attempt in many:
            second.start(rig.start(attempt, rig.forever()))
        for attempt in many:
            rig.until(lambda attempt=attempt: rig.started(attempt), "the first one knows that it runs")
            rig.until(
                lambda attempt=attempt: any(getattr(fact, "attempt", None) == attempt for fact in facts),
                "the second one as well",
            )
            rig.until(lambda attempt=attempt: rig.begun(attempt), "it runs")
        assert [rig.begun(attempt) for attempt in many] == [1] * 10
        assert not [fact for fact in facts if isinstance(fact, AttemptEnded)]
    finally:
        second.close()


# ---- devices ----


def test_devices_are_looked_at_again(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "REFRESH_SECONDS", 0.01)
    rig = LocalRig(tmp_path)
    rig.machine.simulated = False
    rig.open()
    try:
        used = replace(NODE, gpus=(replace(GPUS[0], foreign=True), *GPUS[1:]))
        for listed, seen in ([used], used), ([], replace(used, ready=False)), ([NODE], NODE):
            rig.machine.listed = listed
            rig.until(lambda seen=seen: rig.facts[-1] == NodeSeen(seen), "the change is reported")
        assert len(rig.facts) == 4, "and nothing but changes"
    finally:
        rig.clean()
