"""A server compares its store with the live tasks: a restored, an emptied and a copied store."""

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pliant.engines.local.folder.layout import Layout
from pliant.engines.local.launch.launcher import OwnLauncher
from pliant.engines.local.strangers import strangers
from pliant.store.folder import StateFolder
from pliant.store.recovery import compare, restore_backup
from tests.crash.rig import LITTERING, Rig


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Rig]:
    """Another machine, or another state folder on this one."""
    (tmp_path / "other").mkdir()
    rig = Rig(tmp_path / "other")
    yield rig
    rig.close()


def two_jobs(rig: Rig) -> None:
    """One of two GPUs, one of one; on four."""
    rig.start()
    rig.submit("large", 2, terminationGracePeriodSeconds=60)  # it ends when asked, at once or later
    rig.submit("small", 1, LITTERING)
    rig.settled({"large": "Running", "small": "Running"})
    rig.until(lambda: len(rig.starts()) == 2, "both have begun")
    rig.verify()


def backup(rig: Rig) -> Path:
    path = rig.state.parent / "backup"
    with rig.client() as client:
        client.backup(str(path))
    return path


def forget(rig: Rig) -> None:
    """The database is gone, as after a slip of rm; the folder stays."""
    rig.kill()
    for file in rig.state.glob("pliant.db*"):
        file.unlink()


def end_tasks(rig: Rig) -> None:
    """Ends all tasks, as a power cut does."""
    for pids in rig.alive().values():
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    rig.until(lambda: not rig.alive(), "no process of it")


def last_word(rig: Rig) -> str:
    return (rig.state.parent / "server.log").read_text().strip().splitlines()[-1]


def test_onto_a_new_state_folder_nothing_runs_without_a_process(rig: Rig, other: Rig) -> None:
    rig.start()
    rig.submit("plain", 2, "exec sleep 1000", environmentVariables=[])
    rig.submit("with-variables", 1)
    rig.settled({"plain": "Running", "with-variables": "Running"})
    kept = backup(rig)
    rig.kill()
    end_tasks(rig)
    restore_backup(StateFolder(other.state), kept)
    other.submitted = dict(rig.submitted)
    other.start()
    other.settled(
        {"plain": "Running", "with-variables": "Pending"}
    )  # backups do not contain values of variables
    other.verify()
    assert {attempt.rpartition("/")[2] for attempt in other.alive()} == {"2"}, "the first attempt was lost"


def test_after_another_boot_nothing_runs_without_a_process(rig: Rig) -> None:
    two_jobs(rig)
    rig.kill()
    end_tasks(rig)
    (rig.state / "boot_id").write_text("11111111-2222-3333-4444-555555555555\n")
    rig.start()
    rig.until(lambda: rig.calm() and set(rig.phases().values()) == {"Running"}, "both jobs again")
    rig.verify()


def test_a_copied_state_folder_takes_nothing_from_the_first(rig: Rig, other: Rig) -> None:
    two_jobs(rig)
    rig.kill()
    lives = rig.alive()
    shutil.copytree(rig.state, other.state, symlinks=True, ignore=shutil.ignore_patterns("sock"))
    other.submitted = dict(rig.submitted)
    other.start()
    rig.until(lambda: other.calm() and set(other.phases().values()) == {"Running"}, "both jobs again")
    other.verify()
    assert rig.alive().keys() == lives.keys(), "the first folder's tasks live on"


def test_an_emptied_store_refuses_and_ends_nothing(rig: Rig) -> None:
    two_jobs(rig)
    rig.restart()  # its epoch is above that of a new store
    lives = rig.alive().keys()
    forget(rig)
    rig.start(wait=False)
    rig.until(rig.died, "the refusal")
    assert rig.exit_code() == 5
    assert "2 tasks run here (large, small)" in last_word(rig)
    assert "`pliant up --adopt` keeps them running, `pliant up --end` stops them" in last_word(rig)
    assert rig.alive().keys() == lives


def test_what_runs_is_adopted(rig: Rig) -> None:
    two_jobs(rig)
    rig.restart()
    lives = rig.alive().keys()
    forget(rig)
    rig.start(unknown="adopt")
    rig.settled({"large": "Running", "small": "Running"})
    rig.verify()
    assert rig.alive().keys() == lives, "not one was started anew"
    rig.restart()
    rig.verify()
    assert rig.alive().keys() == lives
    rig.delete("large")
    rig.settled({"small": "Running"})
    rig.verify()


def test_what_runs_is_ended_with_its_grace(rig: Rig) -> None:
    two_jobs(rig)
    forget(rig)
    rig.start(unknown="end")
    assert rig.alive() == {} and rig.items() == {}
    assert " term" in rig.journal.read_text(), "it was asked before it was killed"


def test_a_backup_and_what_it_does_not_know(rig: Rig) -> None:
    two_jobs(rig)
    kept = backup(rig)
    rig.submit("late", 1)
    rig.settled({"large": "Running", "small": "Running", "late": "Running"})
    lives = rig.alive().keys()
    rig.restart()
    forget(rig)
    layout = Layout(rig.state)
    assert compare(kept, lambda known: strangers(layout, OwnLauncher(layout, (), 0, 0), known)) == {
        "known": 2,
        "unknown": 1,
    }
    restore_backup(StateFolder(rig.state), kept)
    rig.start(wait=False)
    rig.until(rig.died, "the refusal")
    assert "1 task runs here (late)" in last_word(rig)
    assert rig.alive().keys() == lives
    rig.start(unknown="adopt")
    rig.settled({"large": "Running", "small": "Running", "late": "Running"})
    rig.verify()
    assert rig.alive().keys() == lives


def test_tasks_whose_folders_are_gone_are_ended_before_they_start_again(rig: Rig) -> None:
    """The store has them as running, but nothing of them is on disk."""
    two_jobs(rig)
    rig.kill()
    shutil.rmtree(rig.state / "attempts")
    rig.start()
    rig.until(lambda: rig.calm() and set(rig.phases().values()) == {"Running"}, "both jobs again")
    rig.verify()
