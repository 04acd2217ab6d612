"""Work that an engine found: imported, followed, held while incomplete, and changed only by its maker."""

from dataclasses import replace

import pytest

from pliant.control.errors import Conflict
from pliant.control.state.imports import Imports
from pliant.model.fact import AttemptEnded, WorkFound, WorkGone, WorkListed
from pliant.model.origin import Origin
from pliant.model.reason import Named, Outwaited
from pliant.model.workload import (
    AttemptId,
    Desired,
    Exit,
    Kind,
    Launch,
    Phase,
    Request,
    TaskGroup,
    Workload,
)
from pliant.sched.verdicts import Verdicts
from tests.control.stage import Stage

JOB = TaskGroup("task", Request(1), min=0, wanted=3, max=3, at_once=2)


def work(*, name="train", project="default", ready=2, group=JOB, **more):
    origin = Origin("virtual", "Job", f"runai-{project}", name, ((group.name, ready),))
    return Workload(
        f"uid-{name}", name, project, Kind.TRAINING, Launch("any"), (group,), origin=origin, **more
    )


class Found:
    """The virtual engine; records the answers that it gets."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.answers, self.reasons = stage, [], []
        stage.loop.engines["virtual"].answer = self.note

    def note(self, workload, why, *, taken):
        (self.reasons if taken and why else self.answers).append((workload, why))

    def tell(self, *facts):
        for fact in facts:
            self.stage.loop.post(fact)
        self.stage.run()


@pytest.fixture
def found(stage):
    return Found(stage)


def test_it_competes_as_any_other_and_says_where_it_is_from(stage, found):
    found.tell(WorkFound(work()))
    view = stage.view("uid-train")
    assert found.answers == [("uid-train", "")]
    assert (view.workload.name, view.project.name, view.workload.phase) == ("train", "default", Phase.RUNNING)
    assert sum(task.claims is not None for task in view.tasks) == 2


def test_nothing_is_given_to_pods_that_are_not_there(stage, found):
    found.tell(WorkFound(work(ready=1)))
    view = stage.view("uid-train")
    assert view.workload.held == "assembling" and view.gpu == 0
    assert view.reason.text(0) == "Waiting for more pods of Job runai-default/train: 1 pod can start now."
    found.tell(WorkFound(work(ready=2)))
    assert not stage.view("uid-train").workload.held
    assert stage.phase("uid-train") == Phase.RUNNING


def over(row, failure=""):
    return replace(row, origin=replace(row.origin, ready=(("task", 0),), over=True, failure=failure))


@pytest.mark.parametrize(
    ("failure", "phase", "said"),
    [
        (
            "BackoffLimitExceeded: Job has reached it.",
            Phase.FAILED,
            "has failed: BackoffLimitExceeded: Job has reached it.",
        ),
        ("", Phase.COMPLETED, "is complete."),
    ],
)
def test_a_job_that_is_over_waits_for_nothing(stage, found, failure, phase, said):
    found.tell(WorkFound(work(ready=0)))
    assert stage.view("uid-train").workload.held == "assembling"
    found.tell(WorkFound(over(work(), failure)))
    row = stage.view("uid-train").workload
    assert (row.phase, row.phase_message) == (phase, f"Job runai-default/train {said}")


def test_what_still_runs_of_a_job_that_is_over_ends_first(stage, found):
    found.tell(WorkFound(work()))
    found.tell(WorkFound(over(work(), "DeadlineExceeded")))
    assert stage.phase("uid-train") == Phase.RUNNING


def test_a_project_that_is_made_later(stage, found):
    found.tell(WorkFound(work(project="team-x")))
    assert "uid-train" not in stage.loop.world.workloads
    assert "Project team-x does not exist. Create it with `pliant project create" in found.answers[0][1]
    stage.project("team-x", 1)
    stage.run()
    assert found.answers[1:] == [("uid-train", "")]
    assert stage.view("uid-train").project.name == "team-x"


def test_its_maker_alone_ends_it(stage, found):
    found.tell(WorkFound(work()))
    for change in (stage.service.delete, stage.service.suspend, stage.service.cancel, stage.service.resume):
        with pytest.raises(Conflict) as refused:
            change("uid-train", "me")
        said = "is Job runai-default/train on the cluster and is ended there: kubectl delete --namespace"
        assert f"{said} runai-default job/train." in str(refused.value)
    assert stage.loop.world.workloads["uid-train"].desired is Desired.RUNNING
    found.tell(WorkGone("uid-train"))
    stage.run(60_000)
    assert "uid-train" not in stage.loop.world.workloads


def test_the_pods_of_a_pod_group_are_what_is_deleted(stage, found):
    row = work(name="pair")
    found.tell(WorkFound(replace(row, origin=replace(row.origin, kind="PodGroup"))))
    with pytest.raises(Conflict) as refused:
        stage.service.delete("uid-pair", "me")
    said = "kubectl delete --namespace runai-default pod NAME..., with all pods of the group."
    assert said in str(refused.value)


def test_what_is_made_anew_before_the_old_is_gone(stage, found):
    found.tell(WorkFound(work()), WorkGone("uid-train"), WorkFound(work(ready=1)))
    stage.run(60_000)
    row = stage.view("uid-train").workload
    assert (row.desired, row.held) == (Desired.RUNNING, "assembling")
    found.tell(WorkGone("uid-train"))
    stage.run(60_000)
    assert "uid-train" not in stage.loop.world.workloads


def test_what_went_while_nobody_looked(stage, found):
    found.tell(WorkFound(work()), WorkFound(work(name="other", ready=1)))
    own = stage.submit("own", 1)
    found.tell(WorkListed("virtual", frozenset({"uid-other"})))
    stage.run(60_000)
    assert {"uid-other", own} == set(stage.loop.world.workloads)


def test_it_grows_and_shrinks_with_its_maker(stage, found):
    few = replace(JOB, at_once=0, wanted=1, max=1)
    found.tell(WorkFound(work(group=few, ready=1)))
    found.tell(WorkFound(work(group=replace(few, wanted=3, max=3), ready=2)))
    assert len(stage.loop.world.tasks_of("uid-train")) == 3
    found.tell(WorkFound(work(group=few, ready=0)))
    live = [task for task in stage.loop.world.tasks_of("uid-train") if task.phase.live]
    assert len(stage.loop.world.tasks_of("uid-train")) == len(live)


def test_a_task_that_its_maker_takes_away_and_makes_again_has_new_attempts(stage, found):
    """Its engine still knows the old attempt numbers and how those attempts ended."""
    two = replace(JOB, at_once=0, wanted=2, max=2)
    found.tell(WorkFound(work(group=two)))
    found.tell(AttemptEnded(AttemptId("uid-train", "task-1", 1), Exit(stage.timeline.now(), lost=True)))
    found.tell(WorkFound(work(group=replace(two, wanted=1, max=1), ready=0)))
    assert [task.name for task in stage.loop.world.tasks_of("uid-train")] == ["task-0"]
    stage.reopen()
    found = Found(stage)
    found.tell(WorkFound(work(group=two, ready=1)))
    again = next(task for task in stage.loop.world.tasks_of("uid-train") if task.name == "task-1")
    assert (again.attempt, again.phase.live) == (2, True)
    numbers = [row.id.number for row in stage.store.attempts("uid-train") if row.id.task == "task-1"]
    assert numbers == [1, 2], "the first one stays in its history"
    found.tell(WorkFound(work(group=replace(two, wanted=3, max=3), ready=0)))
    with pytest.raises(Conflict, match="has not been started yet"):
        stage.service.logs("uid-train", task="task-2")


GANG = TaskGroup("head", Request(1), min=1, wanted=1, max=1)
WORKERS = TaskGroup("workers", Request(1), min=1, wanted=1, max=1)


def gang(*groups, ready):
    row = work(group=groups[0])
    return replace(row, groups=groups, origin=replace(row.origin, ready=tuple(ready.items())))


def test_a_gang_that_grows_is_not_broken(stage, found):
    """Its new pods never find a place; the two running ones keep running."""
    found.tell(WorkFound(gang(GANG, WORKERS, ready={"head": 1, "workers": 1})))
    assert stage.phase("uid-train") == Phase.RUNNING
    more = replace(WORKERS, min=40, wanted=40, max=40)
    found.tell(WorkFound(gang(GANG, more, ready={"head": 0, "workers": 39})))
    stage.run(600_000)
    row = stage.view("uid-train").workload
    assert row.phase == Phase.RUNNING
    live = {task.name for task in stage.loop.world.tasks_of("uid-train") if task.phase.live}
    assert {"head-0", "workers-0"} <= live


def test_a_group_that_is_named_no_longer_stays_until_it_is_gone(stage, found):
    found.tell(WorkFound(gang(GANG, WORKERS, ready={"head": 1, "workers": 1})))
    found.tell(WorkFound(gang(GANG, ready={"head": 0})))
    row = stage.view("uid-train").workload
    assert [(it.name, it.max) for it in row.groups] == [("head", 1), ("workers", 0)]
    assert row.phase == Phase.RUNNING


def test_a_name_that_is_taken(stage, found):
    stage.submit("train", 1)
    found.tell(WorkFound(work()))
    assert stage.view("uid-train").workload.name == "train-uid-trai"


def test_priorities_are_those_of_here(stage, found):
    found.tell(
        WorkFound(work(name="a", priority_class="very-high")),
        WorkFound(work(name="b", priority_class="theirs", priority=7)),
    )
    rows = stage.loop.world.workloads
    assert (rows["uid-a"].priority, rows["uid-a"].preemptible) == (150, False)
    assert (rows["uid-b"].priority, rows["uid-b"].preemptible) == (7, True)


def test_why_it_waits_is_told_where_it_came_from(stage, found):
    stage.project("team-x", 2)
    other = stage.submit("other", 2, project="team-x", preemptible=False)
    found.tell(WorkFound(work()))
    code = stage.view("uid-train").reason.code
    assert stage.phase(other) == Phase.RUNNING and code != "assembling"
    assert [identity for identity, _ in found.reasons] == ["uid-train"]
    assert "GPU" in found.reasons[0][1]
    stage.run(60_000)
    assert len(found.reasons) == 1, "told again only when it is another reason"


@pytest.mark.parametrize(
    ("project", "shown"), [("own", "secret has priority"), ("9", "another workload has")]
)
def test_names_of_other_projects_are_not_told(stage, found, project, shown):
    """A reader of a pod may learn the names of its own project only."""
    found.tell(WorkFound(work()))
    state = stage.loop.state
    own = state.world.workloads["uid-train"].project
    holder = Named("workload", "other", "secret", own if project == "own" else project, "team-x")
    state.verdicts = Verdicts.of_each(("uid-train",), (Outwaited(holder, 50, 80, 70, 1000),))
    state.touched.add("uid-train")
    imports = Imports(state)
    imports.explain(0)
    (answer,) = imports.answers()
    assert shown in answer.why
