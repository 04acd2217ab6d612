"""How settings changed while the server runs affect work."""

from dataclasses import replace

import pytest

from pliant.control.submit.submission import Distribution
from pliant.control.usecases.changes import QueueChange, QuotaChange
from pliant.model.ledger import Disruptions
from pliant.model.workload import Kind
from tests.control.stage import Stage

MINUTE = 60_000


def code(stage: Stage, identity: str) -> str:
    reason = stage.view(identity).reason
    return reason.code if reason is not None else ""


@pytest.mark.parametrize(("trusted", "owner"), [("no", "1001"), ("project", "project:{}"), ("yes", "")])
@pytest.mark.parametrize("account", ["1001", ""])
def test_whom_a_part_of_a_gpu_belongs_to(stage: Stage, trusted: str, owner: str, account: str) -> None:
    stage.service.tune({"share_across_users": trusted}, "me")
    part = stage.view(stage.submit("part", gpus=0, portion=300, card_owner=account)).workload
    whole = stage.view(stage.submit("whole", card_owner=account)).workload
    assert part.groups[0].request.owner == (owner.format(part.project) if account else "")
    assert whole.groups[0].request.owner == "", "a whole GPU needs none"


def lent(stage: Stage, quota: int) -> list[str]:
    """Two jobs of a project without quota run on both GPUs; project `owner` has a quota."""
    nothing = QueueChange(quotas=(("default", QuotaChange(gpu=0)),))
    stage.service.update_project("default", nothing, "me")
    stage.project("guest", 0)
    stage.project("owner", quota)
    jobs = [stage.submit(f"guest{index}", project="guest") for index in range(2)]
    stage.run(1000)
    return jobs


def test_a_churn_budget_that_is_spent_stays_spent_over_a_restart(stage: Stage) -> None:
    stage.service.tune({"churn_budget": 1}, "me")
    guests = lent(stage, 2)
    first = stage.submit("first", project="owner")
    stage.run(1000)
    assert stage.phase(first) == "Running"
    stage.reopen()
    second = stage.submit("second", project="owner")
    stage.run(1000)
    assert (stage.phase(second), code(stage, second)) == ("Pending", "churn-budget")
    assert [row.times for row in stage.store.load().of(Disruptions)] != []
    stage.service.tune({"churn_budget": None}, "me")
    stage.run(1000)
    assert stage.phase(second) == "Running"
    assert [stage.phase(guest) for guest in guests] == ["Pending", "Pending"]


@pytest.mark.parametrize(("ageing", "first"), [(0, "later"), (MINUTE, "patient")])
def test_ageing_lets_the_one_that_waited_go_first(stage: Stage, ageing: int, first: str) -> None:
    person = stage.submit("person", 2, interactive=True)
    jobs = {"patient": stage.submit("patient", 2, priority="very-low")}
    stage.run(60 * MINUTE)
    jobs["later"] = stage.submit("later", 2, priority="low")
    stage.service.tune({"ageing": ageing}, "me")
    stage.service.delete(person, "me")
    stage.run(1000)
    running = [name for name, job in jobs.items() if stage.phase(job) == "Running"]
    assert running == [first]


@pytest.mark.parametrize(
    ("reserving", "small", "phase"),
    [
        (0, {}, "Running"),
        (2000, {}, "Pending"),
        (2000, {"fields": {"max_runtime": 5 * MINUTE}}, "Running"),
        (2000, {"fields": {"max_runtime": 20 * MINUTE}}, "Pending"),
    ],
)
def test_a_reservation_keeps_what_is_free_from_those_that_do_not_end_in_time(
    stage: Stage, reserving: int, small: dict[str, int], phase: str
) -> None:
    stage.service.tune({"reservation": reserving}, "me")
    stage.submit("now", fields={"max_runtime": 10 * MINUTE}, preemptible=False)
    stage.run(1000)
    pair = Distribution("PyTorch", workers=2, lead=False)
    gang = stage.submit("gang", kind=Kind.DISTRIBUTED, distribution=pair)
    stage.run(1000)
    other = stage.submit("other", **small)
    stage.run(1000)
    assert (stage.phase(gang), stage.phase(other)) == ("Pending", phase)
    assert phase == "Running" or code(stage, other) == "reserved"


def test_how_long_a_failed_start_waits(stage: Stage) -> None:
    stage.service.tune({"retry_base": 60_000}, "me")
    job = stage.submit("job", virtual={"seconds": 1, "exit": 3})
    stage.run(2000)
    [task] = stage.view(job).tasks
    assert task.retry_at is not None
    assert 55_000 < task.retry_at - stage.timeline.now() <= 60_000
    assert replace(stage.loop.state.settings, retry_base=10_000) == type(stage.loop.state.settings)()
