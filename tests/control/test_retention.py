"""How long ended jobs stay listed: by their own value or the setting; running ones are never deleted."""

from dataclasses import replace

import pytest

from pliant.control.explain.dry import Tried
from pliant.model.workload import Phase, Task
from tests.control.stage import Stage

DAY = 24 * 3_600_000


def ended(stage: Stage, name: str) -> str:
    job = stage.submit(name, 0, virtual={"seconds": 5})
    stage.run(20_000)
    assert stage.phase(job) == "Completed"
    return job


def listed(stage: Stage) -> set[str]:
    return {row.name for row in stage.loop.world.workloads.values()}


def test_ended_jobs_stay_until_the_setting_says_otherwise_and_then_go_in_time(stage: Stage) -> None:
    old = ended(stage, "old")
    own = ended(stage, "own")
    stage.loop.call(lambda draft: draft.put(replace(stage.loop.world.workloads[own], ttl=10 * DAY)))
    stage.submit("runs", 1)
    stage.run(5 * DAY)
    assert listed(stage) == {"old", "own", "runs"}
    stage.service.tune({"keep_finished": 2 * DAY}, "root")
    stage.run(1000)
    assert listed(stage) == {"own", "runs"}, "its own time goes before the setting"
    words = [event.message for _, event in stage.service.history(old)]
    assert any("after its end, as the setting keep-finished says." in word for word in words)
    ended(stage, "new")
    stage.run(2 * DAY - 60_000)
    assert "new" in listed(stage)
    stage.reopen()
    stage.run(60_000)
    assert listed(stage) == {"own", "runs"}


def test_a_longer_time_counts_at_once_and_for_ever_is_for_ever(stage: Stage) -> None:
    stage.service.tune({"keep_finished": DAY}, "root")
    ended(stage, "job")
    stage.run(DAY // 2)
    stage.service.tune({"keep_finished": 3 * DAY}, "root")
    stage.run(DAY)
    assert listed(stage) == {"job"}
    stage.service.tune({"keep_finished": 0}, "root")
    stage.run(100 * DAY)
    assert listed(stage) == {"job"}


def test_a_dry_run_of_the_setting_deletes_nothing(stage: Stage) -> None:
    ended(stage, "job")
    stage.run(5 * DAY)
    with pytest.raises(Tried):
        stage.service.dry().tune({"keep_finished": DAY}, "root")
    stage.run(DAY)
    assert listed(stage) == {"job"}


def test_3000_ended_jobs_go_in_few_transactions(stage: Stage) -> None:
    first = ended(stage, "first")
    row = stage.loop.world.workloads[first]

    def fill(draft) -> None:
        for number in range(3000):
            identity = f"filled-{number}"
            draft.put(replace(row, id=identity, name=identity, serial=10_000 + number, phase=Phase.COMPLETED))
            draft.put(Task(identity, "task-0", "task", 0))

    stage.loop.call(fill)
    commits = 0
    commit = stage.store.commit

    def counted(epoch, batch) -> None:
        nonlocal commits
        commits += 1
        commit(epoch, batch)

    stage.store.commit = counted
    stage.service.tune({"keep_finished": 1000}, "root")
    stage.run(10_000)
    assert listed(stage) == set() and commits < 10
