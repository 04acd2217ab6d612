"""Tells out-of-memory kills from other kills by the kernel's counter."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pliant.engines.local.observe.memory import Kills
from tests.engines.contract import A
from tests.engines.local_rig import LocalRig


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A machine with control groups, without a kill in its group so far."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text("0::/jobs/own\n")
    (tmp_path / "proc" / "vmstat").write_text("nr_free_pages 5\noom_kill 3\n")
    (tmp_path / "cgroup" / "jobs" / "own").mkdir(parents=True)
    count(tmp_path, 0)
    return tmp_path


def count(kernel: Path, kills: int) -> None:
    (kernel / "cgroup" / "jobs" / "own" / "memory.events").write_text(f"low 0\noom 9\noom_kill {kills}\n")


def old(kernel: Path, kills: int) -> None:
    """Control groups of the first version, with the kernel's file format."""
    (kernel / "proc" / "self" / "cgroup").write_text("5:cpu:/\n4:memory,pids:/jobs/own\n0::/\n")
    (kernel / "cgroup" / "memory" / "jobs" / "own").mkdir(parents=True, exist_ok=True)
    said = f"oom_kill_disable 0\nunder_oom 0\noom_kill {kills}\n"
    (kernel / "cgroup" / "memory" / "jobs" / "own" / "memory.oom_control").write_text(said)


def kills(kernel: Path) -> Kills:
    return Kills(kernel / "proc", kernel / "cgroup")


@pytest.mark.parametrize(("code", "signal"), [(None, 9), (137, None)])
def test_a_kill_that_the_kernel_has_counted(kernel: Path, code: int | None, signal: int | None) -> None:
    seen = kills(kernel)
    assert not seen.fresh(code, signal)
    count(kernel, 1)
    assert seen.fresh(code, signal)
    assert not seen.fresh(code, signal), "the count has not grown since"


def test_other_ends_are_none(kernel: Path) -> None:
    seen = kills(kernel)
    count(kernel, 1)
    assert not seen.fresh(1, None)


def test_a_kill_of_long_ago_explains_no_end_of_now(kernel: Path) -> None:
    seen = kills(kernel)
    count(kernel, 1)
    seen.look()
    assert seen.fresh(None, 9), "counted since the last look but one"
    count(kernel, 2)
    seen.look()
    seen.look()
    assert not seen.fresh(None, 9)


def test_a_kill_explains_one_end(kernel: Path) -> None:
    seen = kills(kernel)
    count(kernel, 2)
    assert [seen.fresh(None, 9), seen.fresh(1, None), seen.fresh(None, 9), seen.fresh(None, 9)] == [
        True,
        False,
        True,
        False,
    ]


def test_control_groups_of_the_first_version_count_too(kernel: Path) -> None:
    old(kernel, 3)
    seen = kills(kernel)
    (kernel / "proc" / "vmstat").write_text("oom_kill 4\n")
    assert not seen.fresh(None, 9), "another group's"
    old(kernel, 4)
    assert seen.fresh(None, 9)


def test_without_control_groups_the_machine_counts(kernel: Path) -> None:
    (kernel / "cgroup" / "jobs" / "own" / "memory.events").unlink()
    seen = kills(kernel)
    (kernel / "proc" / "vmstat").write_text("oom_kill 4\n")
    assert seen.fresh(None, 9)


def test_a_kernel_that_does_not_count(tmp_path: Path) -> None:
    assert not kills(tmp_path).fresh(None, 9)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[LocalRig]:
    rig = LocalRig(tmp_path)
    rig.open()
    yield rig
    rig.clean()


@pytest.mark.parametrize("counted", [True, False])
def test_a_task_that_was_killed_says_whether_memory_ran_out(
    rig: LocalRig, kernel: Path, monkeypatch: pytest.MonkeyPatch, counted: bool
) -> None:
    monkeypatch.setattr(rig.engine._living, "_kills", kills(kernel))
    events = kernel / "cgroup" / "jobs" / "own" / "memory.events"
    rig.start(A, rig.shell(f"echo oom_kill {int(counted)} > {events}; kill -9 $$"))
    end = rig.end(A)
    assert (end.signal, end.oom) == (9, counted)
