"""Rules that depend on time and on the past, through a loop with its store: restarts lose nothing."""

from pliant.control.usecases.changes import QueueChange, QuotaChange
from pliant.model.ledger import Disruptions
from tests.control.stage import Stage

HOUR = 3_600_000


def crowded(stage: Stage) -> list[str]:
    """b runs on both GPUs over quota and a has the quota: a job of a takes from b."""
    stage.project("a", 2)
    stage.project("b", 0)
    stage.service.update_project("default", QueueChange(quotas=(("default", QuotaChange(gpu=0)),)), "me")
    lent = [stage.submit(f"b{index}", project="b") for index in range(2)]
    stage.run(1000)
    assert [stage.phase(job) for job in lent] == ["Running", "Running"]
    return lent


def reason(stage: Stage, job: str) -> str:
    return stage.loop.state.verdicts.reason(job).code


def test_a_churn_budget_outlives_the_server(stage: Stage) -> None:
    stage.service.tune({"churn_budget": 1}, "me")
    crowded(stage)
    jobs = [stage.submit(f"a{index}", project="a") for index in range(2)]
    stage.run(60_000)
    assert [stage.phase(job) for job in jobs] == ["Running", "Pending"]
    assert reason(stage, jobs[1]) == "churn-budget"
    (row,) = stage.store.load().of(Disruptions)
    assert len(row.times) == 1
    stage.reopen()
    stage.run(HOUR // 2)
    assert stage.phase(jobs[1]) == "Pending"
    assert reason(stage, jobs[1]) == "churn-budget"
    stage.run(HOUR // 2)
    assert stage.phase(jobs[1]) == "Running"


def test_a_preemption_delay_ends_by_itself(stage: Stage) -> None:
    crowded(stage)
    job = stage.submit("a", project="a", fields={"preemption_delay": 60_000})
    stage.run(59_000)
    assert (stage.phase(job), reason(stage, job)) == ("Pending", "preemption-delay")
    stage.reopen()
    stage.run(2_000)
    assert stage.phase(job) == "Running"
