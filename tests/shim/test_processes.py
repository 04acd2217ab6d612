"""One limit for many processes that come and go."""

import signal
import subprocess

import pytest

from pliant.devices import ledger
from tests.shim.stage import GIB, MIB, OOM, UUIDS, Stage, answers, go_on, living, until

NAME = UUIDS[0].removeprefix("GPU-")


def test_processes_share_one_limit_and_the_dead_give_back(stage: Stage) -> None:
    stage.cards(4 * GIB)
    env = stage.grant(GIB)
    first = stage.start(*stage.command("soname", "init", "ctx", "alloc:600M", "ready"), env=env)
    with living(first):
        until(first, "ready")
        said = stage.probe("soname", "init", "ctx", "info", "fill:alloc:8M", env=env)
        assert said["info"] == [0, GIB - 600 * MIB, GIB]
        assert said["fill"] == [OOM, 424 * MIB]
        assert ledger.used(stage.ledger()) == {NAME: 600 * MIB}
        (use,) = ledger.uses(stage.ledger())
        assert (use.pid, use.name, use.kinds[NAME]) == (first.pid, "probe", {"plain": 600 * MIB})
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert not ledger.alive(stage.ledger())
        assert ledger.used(stage.ledger()) == {}
        said = stage.probe("soname", "init", "ctx", "info", "fill:alloc:64M", env=env)
        assert said["info"] == [0, GIB, GIB]
        assert said["fill"] == [OOM, GIB]
    assert stage.count().peak == GIB


@pytest.mark.parametrize("how", ["fork", "rawfork"])
def test_a_forked_child_is_a_process_of_its_own(stage: Stage, how: str) -> None:
    stage.cards(4 * GIB)
    ops = ("init", "ctx", "alloc:600M", how, "init", "ctx", "fill:alloc:8M", "ready", "free", "info")
    parent = stage.start(*stage.command("soname", *ops), env=stage.grant(GIB))
    with living(parent):
        said = answers(until(parent, "ready"))
        assert said["fill"] == [OOM, 424 * MIB]
        assert len(ledger.uses(stage.ledger())) == 2
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        (use,) = ledger.uses(stage.ledger())  # the child does not keep its parent's slot
        assert use.charged == {NAME: 424 * MIB}
        go_on(parent)
        said = answers(until(parent, "info"))
        assert said["info"] == [0, GIB, GIB]


def test_closing_every_descriptor_changes_nothing(stage: Stage) -> None:
    stage.cards(4 * GIB)
    env = stage.grant(GIB)
    first = stage.start(*stage.command("soname", "init", "ctx", "alloc:600M", "close", "ready"), env=env)
    with living(first):
        until(first, "ready")
        said = stage.probe("soname", "init", "ctx", "fill:alloc:8M", env=env)
        assert said["fill"] == [OOM, 424 * MIB]


def test_exec_begins_anew(stage: Stage) -> None:
    stage.cards(4 * GIB)
    inner = "exec " + " ".join(stage.command("soname", "init", "ctx", "fill:alloc:8M", "ready"))
    outer = ["sh", "-c", f"{stage.command('soname', 'init', 'ctx', 'alloc:600M')[0]} soname init; {inner}"]
    process = stage.start(*outer, env=stage.grant(GIB))
    with living(process):
        assert answers(until(process, "ready"))["fill"] == [OOM, GIB]
        assert len(ledger.uses(stage.ledger())) == 1


def test_many_short_processes_leave_nothing(stage: Stage) -> None:
    stage.cards(4 * GIB)
    env = stage.env | stage.grant(GIB)
    command = stage.command("soname", "init", "ctx", "alloc:8M")
    quick = {"env": env, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    for _ in range(40):  # 16 at a time, half of them killed at random points
        batch = [subprocess.Popen(command, **quick) for _ in range(8)]
        for process in batch[::2]:
            process.kill()
        for process in batch:
            process.wait()
    assert not ledger.alive(stage.ledger())
    assert stage.probe("soname", "init", "ctx", "fill:alloc:64M", env=env)["fill"] == [OOM, GIB]
    assert stage.count().peak <= GIB


def test_a_limit_changes_under_a_running_program(stage: Stage) -> None:
    stage.cards(4 * GIB)
    ops = ["init", "ctx", "fill:alloc:64M", "ready", "total", "info", "fill:alloc:64M", "ready"]
    ops += ["total", "info", "alloc:1M", "free", "fill:alloc:64M", "ready"]
    program = stage.start(*stage.command("soname", *ops), env=stage.grant(GIB))
    with living(program):
        assert answers(until(program, "ready"))["fill"] == [OOM, GIB]
        stage.grant(2 * GIB)
        go_on(program)
        said = answers(until(program, "ready"))
        assert (said["total"], said["info"]) == ([0, 2 * GIB], [0, GIB, 2 * GIB])
        assert said["fill"] == [OOM, GIB]
        stage.grant(512 * MIB)  # less than it has: it keeps that, and gets no more
        go_on(program)
        said = answers(until(program, "ready"))
        assert (said["total"], said["info"]) == ([0, 512 * MIB], [0, 0, 512 * MIB])
        assert said["alloc"] == [OOM]
        assert said["fill"] == [OOM, 512 * MIB]


def test_the_next_allocation_sees_a_new_limit(stage: Stage) -> None:
    stage.cards(4 * GIB)
    ops = ["init", "ctx", "alloc:64M", "ready", "fill:alloc:64M", "ready"]
    program = stage.start(*stage.command("soname", *ops), env=stage.grant(4 * GIB))
    with living(program):
        until(program, "ready")
        stage.grant(256 * MIB)
        go_on(program)
        assert answers(until(program, "ready"))["fill"] == [OOM, 192 * MIB]


def test_what_the_node_sees_beyond_the_charge_counts(stage: Stage) -> None:
    stage.cards(4 * GIB)
    env = stage.grant(GIB)
    first = stage.start(*stage.command("soname", "init", "ctx", "alloc:512M", "ready"), env=env)
    with living(first):
        until(first, "ready")
        seen = {first.pid: 600 * MIB}
        before = ledger.observe(stage.ledger(), UUIDS[0], seen, {})
        assert ledger.used(stage.ledger()) == {NAME: 512 * MIB}  # one look may have come at a bad time
        ledger.observe(stage.ledger(), UUIDS[0], seen, before)
        assert ledger.used(stage.ledger()) == {NAME: 600 * MIB}
        said = stage.probe("soname", "init", "ctx", "fill:alloc:8M", env=env)
        assert said["fill"] == [OOM, 424 * MIB]


def test_the_line_says_who_holds_what_once(stage: Stage) -> None:
    stage.cards(4 * GIB)
    env = stage.grant(GIB)
    first = stage.start(*stage.command("soname", "init", "ctx", "alloc:512M", "ready"), env=env)
    with living(first):
        until(first, "ready")
        ops = ("init", "ctx", "alloc:256M", "alloc:512M", "alloc:512M")
        done = stage.complete(*stage.command("soname", *ops), env=env)
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        f"pliant-gpu: out of GPU share on {UUIDS[0]}: asked 512 MiB, 768 MiB of 1 GiB in use by 2 processes "
    )
    assert f"pid {first.pid} probe 512 MiB" in line


def test_the_card_can_be_full_before_the_share_is(stage: Stage) -> None:
    stage.cards(GIB)
    stranger = stage.start(*stage.command("soname", "init", "ctx", "alloc:768M", "ready"))
    with living(stranger):
        until(stranger, "ready")
        done = stage.complete(
            *stage.command("soname", "init", "ctx", "fill:alloc:64M"), env=stage.grant(512 * MIB)
        )
    assert "fill 2 268435456" in done.stdout
    assert (
        f"{UUIDS[0]} itself has no room for 64 MiB, although 256 MiB of this workload's share" in done.stderr
    )


def test_a_stopped_process_keeps_nobody_waiting(stage: Stage) -> None:
    stage.cards(4 * GIB)
    env = stage.grant(GIB)
    first = stage.start(*stage.command("soname", "init", "ctx", "fill:alloc:64M", "ready"), env=env)
    with living(first):
        until(first, "ready")
        first.send_signal(signal.SIGSTOP)
        assert stage.probe("soname", "init", "ctx", "alloc:64M", env=env)["alloc"] == [OOM]
