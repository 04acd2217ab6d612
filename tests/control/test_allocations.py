"""The allocation document of a job, and the effect of its acknowledgements."""

from typing import Any

import pytest

from pliant.control.errors import Conflict
from pliant.model.progress import MOST_POINTS, Progress, with_history
from pliant.model.workload import AttemptId
from tests.control.stage import Stage

STOP = 10_000  # ms that a virtual job takes to leave a device


@pytest.fixture
def wide(stage: Stage) -> str:
    """A job that has both GPUs of the node, one as bonus, and can resize live."""
    identity = stage.submit("wide", elastic=True, virtual={"stop_seconds": STOP // 1000})
    stage.run(1000)
    stage.service.jobs.register(attempt(identity), 1, 77, True)
    stage.run()
    assert stage.view(identity).gpu == 2000
    return identity


def attempt(identity: str, number: int = 1) -> AttemptId:
    return AttemptId(identity, "task-0", number)


def told(stage: Stage, identity: str) -> list[tuple[str, int]]:
    document = stage.service.jobs.document(identity)
    written: Any = stage.machines.allocations[attempt(identity)]
    assert written == document, "the file says the same"
    return [(entry["state"], len(entry["gpus"])) for entry in document["tasks"]]


def test_a_device_that_goes_is_draining_until_it_is_empty(stage: Stage, wide: str) -> None:
    assert told(stage, wide) == [("active", 2)]
    before = stage.service.jobs.document(wide)["version"]
    other = stage.submit("other")
    stage.run()
    assert told(stage, wide) == [("active", 1), ("draining", 1)]
    entry = stage.service.jobs.document(wide)["tasks"][1]
    assert entry["deadline"] == stage.timeline.now() + 30_000
    assert stage.service.jobs.document(wide)["version"] > before
    assert stage.phase(other) == "Pending"
    stage.run(STOP)
    assert told(stage, wide) == [("active", 1)]
    stage.run(1000)
    assert (stage.phase(other), len(stage.service.attempts(wide))) == ("Running", 1)
    assert "Resized" in stage.history(wide)


def test_it_stays_draining_although_it_is_given_back_before_it_is_empty(stage: Stage, wide: str) -> None:
    """The engine carries its order out: a document that revoked it would start workers on that device."""
    other = stage.submit("other")
    stage.run(STOP // 2)
    stage.service.delete(other, "me")
    stage.run()
    assert told(stage, wide) == [("active", 1), ("draining", 1)]
    stage.run(STOP)
    assert told(stage, wide) == [("active", 2)]
    assert stage.view(wide).gpu == 2000


def test_an_acknowledgement_of_an_older_document_counts_for_nothing(stage: Stage, wide: str) -> None:
    asked: list[list[str]] = []
    stage.loop.engines["virtual"].acknowledge = lambda _, gpus: asked.append(list(gpus))  # type: ignore
    old = stage.service.jobs.document(wide)
    gpus = old["tasks"][0]["gpus"]
    stage.submit("other")
    stage.run()
    stage.service.jobs.acknowledge(attempt(wide), old["version"], True, gpus)
    assert asked == []
    new = stage.service.jobs.document(wide)
    stage.service.jobs.acknowledge(attempt(wide), new["version"], True, gpus)
    assert asked == [new["tasks"][1]["gpus"]], "only what it was told to leave"


def test_a_new_server_tells_the_same_under_a_higher_version(stage: Stage, wide: str) -> None:
    stage.submit("other")
    stage.run()
    before = stage.service.jobs.document(wide)
    stage.reopen()
    after = stage.service.jobs.document(wide)
    assert after["version"] > before["version"]
    assert told(stage, wide) == [("active", 1), ("draining", 1)]


def test_only_the_job_itself_makes_it_live(stage: Stage) -> None:
    rigid = stage.submit("rigid")
    plain = stage.submit("plain", elastic=True)
    stage.run(1000)
    stage.service.jobs.register(attempt(rigid), 1, 77, True)
    assert not stage.view(rigid).workload.groups[0].live_resize, "it is not elastic"
    assert not stage.view(plain).workload.groups[0].live_resize
    stage.service.jobs.register(attempt(plain), 1, 77, True)
    assert stage.view(plain).workload.groups[0].live_resize
    stage.service.jobs.register(attempt(plain), 1, 77, False)
    assert not stage.view(plain).workload.groups[0].live_resize


@pytest.mark.parametrize("number", [0, 2])
def test_other_attempts_are_refused(stage: Stage, wide: str, number: int) -> None:
    jobs, other = stage.service.jobs, attempt(wide, number)
    with pytest.raises(Conflict, match="is over"):
        jobs.register(other, 1, 77, True)
    with pytest.raises(Conflict, match="is over"):
        jobs.acknowledge(other, 10**12, True, ["x"])
    with pytest.raises(Conflict, match="is over"):
        jobs.report(other, Progress("", 0, step=3))


def test_progress_outlives_the_server_and_goes_with_the_workload(stage: Stage, wide: str) -> None:
    for step in (1, 2):
        stage.service.jobs.report(attempt(wide), Progress("", 0, "training", step, loss="0.5"))
        stage.run(2000)
    stage.reopen()
    said = stage.view(wide).progress
    assert said is not None
    assert (said.workload, said.step, [point.step for point in said.history]) == (wide, 2, [1, 2])
    stage.service.delete(wide, "me")
    stage.run(STOP + 1000)
    assert stage.loop.state.progress == {}


def test_history_thins_out_from_its_old_end() -> None:
    said: Progress | None = None
    for step in range(1000):
        new = Progress("w", step, step=step)
        said = Progress("w", step, step=step, history=with_history(new, said))
    assert said is not None
    steps = [point.step for point in said.history]
    assert len(steps) <= MOST_POINTS and steps[-1] == 999
    assert steps == sorted(set(steps)) and steps[-30:] == list(range(970, 1000))
