"""Files of deleted workloads: kept, listed, brought back, removed; and the link to a job folder."""

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from pliant.engines.local.folder import trash
from pliant.engines.local.folder.layout import Layout
from pliant.engines.local.folder.trash import Trash
from tests.engines.contract import A, B, workload
from tests.engines.local_rig import LocalRig

DAY = 86_400_000


@pytest.fixture
def rig(tmp_path):
    rig = LocalRig(tmp_path, project_name={"project-1": "team-a"}.get)
    rig.now = 100 * DAY
    rig.options["clock"] = lambda: rig.now
    rig.open()
    yield rig
    rig.clean()


def job(attempt, **changes):
    return replace(workload(attempt.workload, None), name="t", **changes)


def ended(rig, attempt, script):
    """A job that has written into its folder."""
    launch = rig.shell(f'cd "$PLIANT_JOB_DIR" && {script}; echo said')
    order = rig.start(attempt, launch)
    assert rig.end(attempt).succeeded, rig.log(attempt)
    return replace(order.workload, name="t")


def test_a_job_folder_has_a_name_that_people_can_type(rig):
    ended(rig, A, "echo 1 > best.pt")
    link = rig.state / "jobs" / "team-a" / "name-w-a"
    assert link.is_symlink() and (link / "best.pt").read_text() == "1\n"
    assert not os.readlink(link).startswith("/"), "the state folder may be moved"


def test_files_and_log_are_kept_and_come_back(rig):
    row = ended(rig, A, "mkdir out; echo 1 > out/best.pt")
    preview = rig.engine.leaves(row)
    assert (preview.size, preview.project) == (2, "team-a")
    rig.engine.forget(row)
    rig.engine.forget(row)  # a crash in between makes it repeat the request
    [kept] = rig.engine.trash()
    assert replace(preview, deleted=kept.deleted) == kept
    assert not (rig.state / "checkpoints" / "w-a").exists() and not (rig.state / "sealed" / "w-a").exists()
    assert not list((rig.state / "trash").glob("*/attempts/*/*/token"))
    path = rig.engine.restore(kept)
    assert path == str(rig.state / "jobs" / "team-a" / "t")
    found = {name for _, _, names in os.walk(path) for name in names}
    assert {"best.pt", "log"} <= found
    assert rig.engine.trash() == []
    rig.engine.forget(row)  # the next server repeats the request
    assert os.path.exists(f"{path}/out/best.pt"), "what was brought back is the user's"


def test_what_was_brought_back_does_not_stand_in_the_way_of_the_name(rig):
    row = ended(rig, A, "echo 1 > best.pt")
    rig.engine.forget(row)
    path = rig.engine.restore(rig.engine.trash()[0])
    again = replace(row, id="w-b")
    rig.engine._attempts.trash.link(again, "team-a")
    assert (rig.state / "jobs" / "team-a" / "t-w-b").is_symlink()
    assert os.listdir(path) == ["best.pt", "logs"] or set(os.listdir(path)) == {"best.pt", "logs"}


def test_a_newer_job_keeps_the_name(rig):
    row = ended(rig, A, "echo 1 > best.pt")
    rig.engine.forget(row)
    ended(rig, B, "echo 2 > best.pt")
    rig.engine._attempts.trash.link(replace(row, id="w-b"), "team-a")
    path = rig.engine.restore(rig.engine.trash()[0])
    assert path.endswith("/jobs/team-a/t-w-a")


def test_a_log_of_the_jobs_own_stays_what_it_is(rig):
    row = ended(rig, A, "mkdir logs; echo mine > logs/a")
    rig.engine.forget(row)
    path = rig.engine.restore(rig.engine.trash()[0])
    assert sorted(os.listdir(path)) == ["logs", "logs-w-a"] and os.listdir(f"{path}/logs") == ["a"]


@pytest.mark.parametrize("script", ["true", "touch empty"])
def test_what_has_no_bytes_is_told_before_it_is_kept(rig, script):
    row = ended(rig, A, script)
    preview = rig.engine.leaves(row)
    rig.engine.forget(row)
    [kept] = rig.engine.trash()
    assert (kept.size, replace(preview, deleted=kept.deleted)) == (0, kept)


def test_of_what_never_started_nothing_is_kept(rig):
    row = job(A)
    assert rig.engine.leaves(row) is None
    rig.engine.forget(row)
    assert rig.engine.trash() == []


def test_no_more_files_are_counted_than_it_says(tmp_path, monkeypatch):
    monkeypatch.setattr(trash, "COUNTED", 2)
    for name in "abc":
        (tmp_path / name).write_text(name)
    assert trash.size_of(tmp_path) == 2


def test_purge_leaves_nothing(rig):
    row = ended(rig, A, "echo 1 > best.pt")
    rig.engine.forget(replace(row, purge=True))
    assert rig.engine.trash() == []
    rig.until(lambda: not list(rig.state.glob("attempts/.trash-*")), "the folders are removed")
    assert not list(rig.state.glob("*/*/t")), "its link is gone"


def test_a_sweep_removes_what_is_too_old_and_the_oldest_on_a_full_disk(rig):
    for attempt in (A, B):
        rig.engine.forget(ended(rig, attempt, "echo 1 > best.pt"))
        rig.now += DAY
    assert rig.engine.sweep(rig.now - 10 * DAY, 0) == []
    assert [kept.workload for kept in rig.engine.sweep(rig.now - 2 * DAY + 1, 0)] == ["w-a"]
    [left] = rig.engine.trash()
    assert left.workload == "w-b"
    assert [kept.workload for kept in rig.engine.sweep(0, 1001)] == ["w-b"], "no disk is freer than that"
    assert os.listdir(rig.state / "trash") == []


def test_on_a_full_disk_a_sweep_needs_no_room(rig, monkeypatch):
    def write(path, document):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    rig.engine.forget(ended(rig, A, "echo 1 > best.pt"))
    monkeypatch.setattr(trash, "write_json", write)
    assert [(kept.workload, kept.size) for kept in rig.engine.sweep(0, 1001)] == [("w-a", 2)]
    assert os.listdir(rig.state / "trash") == []


def test_what_others_put_there_is_passed_over(rig):
    (rig.state / "trash" / "mine").mkdir(parents=True)
    (rig.state / "trash" / "torn").mkdir()
    (rig.state / "trash" / "torn" / "trash.json").write_text(json.dumps([]))
    assert rig.engine.trash() == [] and rig.engine.sweep(rig.now, 1001) == []
    assert sorted(os.listdir(rig.state / "trash")) == ["mine", "torn"]


def test_tasks_that_start_at_once_do_not_take_the_link_from_each_other(tmp_path):
    layout = Layout(tmp_path)
    trash, row = Trash(layout), job(A)
    layout.checkpoint_folder(row.id).mkdir(parents=True)
    together = Barrier(8)

    def link(_):
        together.wait()
        for _ in range(50):
            trash.link(row, "team-a")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(link, range(8)))
    folder = layout.jobs / "team-a"
    assert [path.name for path in folder.iterdir()] == ["t"]
    assert (folder / "t").resolve() == layout.checkpoint_folder(row.id).resolve()
