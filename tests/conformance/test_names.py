"""Names of nodes and jobs decide only which of several equal nodes is taken."""

from collections import Counter

import pytest

from tests.conformance.play import EPOCH
from tests.conformance.session import carry, session
from tests.conformance.shuffle import renamed
from tests.conformance.state import begin, by_age
from tests.conformance.test_conformance import RUN


def _aged(case):
    """The scenario with jobs of different ages: the name rightly decides the order of jobs of equal age."""
    oldest_first = [job["name"] for job in reversed(by_age(case))]
    ages = {name: 0.001 * at for at, name in enumerate(oldest_first)}  # minutes
    jobs = [
        {**job, "created_minutes_ago": job.get("created_minutes_ago", 0) + ages[job["name"]]}
        for job in case["jobs"]
    ]
    return {**case, "jobs": jobs}


def _trail(case, called):
    """After each cycle: the statuses of each job's tasks, and the number of evictions."""
    once = case["mode"] != "rounds"
    rounds = {"until_match": 1, "after_match": 0} if once else case.get("rounds", {})
    jobs = {job["name"]: job for job in case["jobs"]}
    state, now, found = begin(case, EPOCH), EPOCH, []
    for _ in range(rounds.get("until_match", 2) + rounds.get("after_match", 5)):
        outcome = session(state, now, EPOCH, defaults=False)
        doing = Counter((called[task.job], task.status) for task in outcome.state.tasks.values())
        found.append((doing, outcome.evict))
        state, now = carry(outcome, jobs), now + 1000
    return found


def _differ(names, seeds):
    found = []
    for name in names:
        case = _aged(RUN[name])
        same = _trail(case, {job["name"]: job["name"] for job in case["jobs"]})
        found += [(name, seed) for seed in seeds if _trail(*renamed(case, seed)) != same]
    return found


def test_names_do_not_matter():
    assert not _differ([name for name in RUN if len(RUN[name]["jobs"]) < 20], [1])


@pytest.mark.long
def test_names_do_not_matter_however_they_are_given():
    assert not _differ(RUN, range(2, 22))
