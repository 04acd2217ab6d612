"""Restores rows from what a lost server left on its cluster, parts of which may be forged."""

import json
import logging

import pytest

from pliant.control.left import Left, Remnant
from pliant.control.ports import Saved, Stranger
from pliant.model.hold import DEPENDENCY, USER_LIMIT
from pliant.model.machine import Cluster, NodePool, Placement, Share
from pliant.model.origin import Origin
from pliant.model.tenancy import Department, Project, Quota
from pliant.model.workload import (
    Attempt,
    AttemptId,
    Desired,
    Kind,
    Launch,
    Phase,
    Request,
    Task,
    TaskGroup,
    Workload,
)
from pliant.store.adoption import Adoption, kept
from pliant.store.codec import FORMAT, Codec
from pliant.store.errors import StoreError

EMPTY = Saved((), {})
DEPARTMENT, PROJECT = Department("1", "research"), Project("2", "team-a", department="1")
GROUP = TaskGroup("task", Request(1))


def work(identity="w1", name="job", project="2", **more):
    more = {"groups": (GROUP,), "serial": 7, **more}
    return Workload(identity, name, project, Kind.TRAINING, Launch("image"), **more)


def shown(row, phase="", name=None, row_text=None, namespace="team-a"):
    identity = row.id if isinstance(row, Workload) else ""
    text = kept(row) if row_text is None else row_text
    allows = lambda project: project == namespace  # noqa: E731
    return Remnant(type(row).__name__, name or row.name, text, phase, identity, allows, "The cure.")


def taken(*objects, attempts=(), found=(), saved=EMPTY):
    return Adoption(saved, 1000).of(Left(attempts, objects, found, "lost"))


def of(kind, rows):
    return [row for row in rows.rows if isinstance(row, kind)]


TENANCY = (shown(DEPARTMENT), shown(PROJECT))


def stranger(row, *, number=1, over=False, uuid="n1/gpu-0", project=PROJECT, task="task-0", **order):
    rows = {
        "format": FORMAT,
        "cluster": "lost",
        "departments": [Codec(Department).encode(DEPARTMENT)],
        "project": Codec(Project).encode(project),
        "workload": Codec(Workload).encode(row),
        "placement": Codec(Placement).encode(Placement("n1", (Share(uuid, 1000, 8),), 500, 10)),
    }
    about = {"epoch": 1, "cause": "d", "ordered_ms": 5, "rows": rows, **order}
    return Stranger(AttemptId(row.id, task, number), about, (uuid,), lambda it: it == "team-a", over)


def test_what_was_shown_is_there_again():
    pool = NodePool("default", "default", min_runtime=5)
    row = work(held=DEPENDENCY, user="ann", labels=(("a", "b"),))
    found = taken(shown(row, "Pending"), *TENANCY, shown(pool))
    assert of(Cluster, found) == [Cluster("lost", created=1000)]
    assert of(NodePool, found) == [pool] and of(Project, found) == [PROJECT]
    (again,) = of(Workload, found)
    assert (again.user, again.labels, again.held, again.serial) == ("ann", (("a", "b"),), DEPENDENCY, 7)
    assert (again.phase, again.desired, again.phase_since) == (Phase.PENDING, Desired.RUNNING, 1000)
    assert of(Task, found) == [Task("w1", "task-0", "task", 0)] and not of(Attempt, found)
    assert "did not run when the database was lost" in found.events[0].message


def test_what_a_server_changes_in_passing_is_not_left():
    row = work(created=3)
    changed = work(
        created=3, phase=Phase.RUNNING, phase_since=9, held=USER_LIMIT, pending_ms=4, phase_message="so"
    )
    assert kept(row) == kept(changed)
    assert kept(row) != kept(work(created=3, priority=60))


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Deleting"])
def test_what_is_over_does_not_start_again(phase):
    assert of(Workload, taken(*TENANCY, shown(work(), phase))) == []
    (row,) = of(Workload, taken(*TENANCY, shown(work(), phase), attempts=[stranger(work())]))
    assert row.desired is (Desired.DELETED if phase == "Deleting" else Desired.STOPPED)


def test_what_was_suspended_stays_so():
    (row,) = of(Workload, taken(*TENANCY, shown(work(desired=Desired.STOPPED), "Stopped")))
    assert row.desired is Desired.STOPPED


def test_an_object_is_newer_than_a_pod():
    old, now = work(priority=50), work(priority=90)
    project = Project("2", "team-a", (("default", Quota(5000)),), department="1")
    found = taken(shown(DEPARTMENT), shown(project), shown(now, "Running"), attempts=[stranger(old)])
    assert of(Project, found) == [project] and of(Workload, found)[0].priority == 90
    assert of(Attempt, found)[0].placement.uuids == ("n1/gpu-0",)


def test_what_has_ended_holds_nothing_until_its_end_is_told():
    found = taken(*TENANCY, shown(work(), "Running"), attempts=[stranger(work(), number=3, over=True)])
    (task,) = of(Task, found)
    assert task.attempt == 3 and task.carries == Placement("n1")
    assert of(Attempt, found)[0].id == AttemptId("w1", "task-0", 3)


def test_a_project_that_was_made_again_is_meant_by_its_name():
    again = Project("9", "team-a", department="1")
    found = taken(shown(DEPARTMENT), shown(again), attempts=[stranger(work())])
    assert of(Project, found) == [again] and of(Workload, found)[0].project == "9"


def test_a_project_of_which_only_pods_tell():
    found = taken(shown(work("w2", "later")), attempts=[stranger(work())])
    assert of(Project, found) == [PROJECT] and len(of(Workload, found)) == 2


def test_a_project_that_was_applied_has_its_quota_at_once():
    quotas = (("default", Quota(2000)),)
    spec = {"quotas": quotas, "department": "research", "origin": "projects.pliant.dev/team-a"}
    applied = Remnant("Project", "team-a", {}, spec=spec)
    found = taken(shown(DEPARTMENT), applied, shown(work()))
    assert of(Project, found) == [
        Project("2", "team-a", quotas, department="1", origin="projects.pliant.dev/team-a")
    ]
    assert of(Project, taken(shown(DEPARTMENT), applied)) == [], "it is made when it is taken over"


HUGE = work(groups=(TaskGroup("task", Request(1), max=10**9),))


@pytest.mark.parametrize(
    "odd",
    [
        shown(work(), row_text={}),
        shown(work(), row_text={"format": FORMAT}),
        shown(work(), row_text={"format": "x", "row": "{}"}),
        shown(work(), row_text={"format": FORMAT + 1, "row": json.dumps({"new": 1})}),
        shown(work(), row_text={"format": FORMAT, "row": 5}),
        shown(work(), row_text={"format": FORMAT, "row": "[" * 100_000}),
        shown(work(), name="another"),
        shown(work(project="3")),
        shown(work(), namespace="team-b"),
        shown(work("w2"), row_text=kept(work("w1"))),
        shown(work(origin=Origin("kube", "Pod", "runai-team-a", "job"))),
        shown(HUGE),
        shown(Project("x", "odd")),
        shown(Project("9" * 5000, "odd")),
        shown(Project("2", "same-id")),
        shown(Project("3", "team-a")),
        shown(Department("1", "same-id")),
        shown(NodePool("9" * 5000, "odd")),
    ],
)
def test_one_that_cannot_be_is_named_with_its_cure_and_the_rest_goes_on(odd, caplog):
    with caplog.at_level(logging.WARNING):
        found = taken(*TENANCY, odd, shown(work("w9", "later")))
    assert [it.id for it in of(Workload, found)] == ["w9"] and of(Project, found) == [PROJECT]
    (said,) = caplog.messages
    assert said.startswith(f"{odd.kind} {odd.name} is not taken in: ") and said.endswith(" The cure.")


def test_of_two_that_say_the_same_the_older_one_is_believed():
    forged = shown(work(), name="job", namespace="team-b")
    found = taken(*TENANCY, shown(work(user="ann")), shown(work(user="eve")), forged)
    assert [it.user for it in of(Workload, found)] == ["ann"]


@pytest.mark.parametrize(
    "odd",
    [
        stranger(work(), task="other-0"),
        stranger(work(), task="task-x"),
        stranger(HUGE),
        stranger(work(), epoch="x"),
        stranger(work(), project=Project("x", "team-a")),
        stranger(work(project="3")),
    ],
)
def test_a_pod_that_cannot_be_is_refused(odd):
    with pytest.raises(StoreError, match=r"w1/.* cannot be read"):
        taken(attempts=[odd])


def test_no_two_have_one_place_in_the_order_of_submission():
    rows = [shown(work(f"w{number}", f"j{number}")) for number in range(3)]
    serials = {it.id: it.serial for it in of(Workload, taken(*TENANCY, *rows))}
    assert serials == {"w0": 7, "w1": 8, "w2": 9}


# ---- pods of others ----


def theirs(identity="uid-1", name="theirs", *uuids, portion=1000, over=False, project="team-a", **more):
    row = work(identity, name, project, origin=Origin("kube", "Pod", "runai-team-a", name), **more)
    shares = tuple(Share(uuid, portion, 8) for uuid in uuids)
    attempt = Attempt(AttemptId(identity, "task-0", 1), Placement("n1", shares, 500, 10), 0, "", 5)
    return row, [(attempt, over)]


def test_pods_of_others_are_workloads_of_their_project_again():
    found = taken(*TENANCY, found=[theirs("uid-1", "theirs", "n1/gpu-0", priority_class="build")])
    (row,) = of(Workload, found)
    assert (row.project, row.priority, row.preemptible, row.phase) == ("2", 100, False, Phase.PENDING)
    (task,) = of(Task, found)
    assert task.carries == task.claims == Placement("n1", (Share("n1/gpu-0", 1000, 8),), 500, 10)
    assert of(Attempt, found)[0].id == AttemptId("uid-1", "task-0", 1)


def test_no_gpu_is_believed_to_be_had_twice(caplog):
    own = stranger(work(), uuid="n1/gpu-0")
    pairs = [
        theirs("uid-1", "whole", "n1/gpu-0"),
        theirs("uid-2", "half", "n1/gpu-1", portion=500),
        theirs("uid-3", "more", "n1/gpu-1", portion=600),
        theirs("uid-4", "other", "n1/gpu-1", portion=500),
        theirs("uid-5", "over", "n1/gpu-0", over=True),
    ]
    found = taken(*TENANCY, attempts=[own], found=pairs)
    assert {it.name for it in of(Workload, found)} == {"job", "half", "other", "over"}
    assert sum("another task has GPU" in said for said in caplog.messages) == 2


def test_pods_of_others_in_a_project_that_is_lost_are_told_of(caplog):
    assert of(Workload, taken(*TENANCY, found=[theirs(project="team-x")])) == []
    assert "pliant project create team-x --quota 0" in caplog.text


def test_two_of_one_name_are_told_apart():
    found = taken(*TENANCY, attempts=[stranger(work())], found=[theirs("uid-12345678", "job")])
    assert {it.name for it in of(Workload, found)} == {"job", "job-uid-1234"}
