"""What people held, as JSON and as a table; limits per person: set, shown and enforced."""

import csv
import io

import pytest

from pliant.model.identity import Allowance
from pliant.model.ledger import Usage
from pliant.model.rights import DEPARTMENT_VIEWER, PRACTITIONER, VIEWER, Place
from tests.api.conftest import Api
from tests.api.people import program
from tests.api.stage import IMAGE

HOUR = 3_600_000_000
USAGE, LIMITS = "/api/v1/usage", "/api/v1/limits"


@pytest.fixture
def held(api: Api) -> dict[str, Place]:
    """Rows of two months, two people and two projects of two departments."""
    found = {}
    for name in ("a", "b"):
        unit = api.call("POST", "/api/v1/org-unit/departments", 201, json={"name": f"dept-{name}"})
        body = {"name": f"team-{name}", "parentId": unit["id"]}
        made = api.call("POST", "/api/v1/org-unit/projects", 201, json=body)
        found[name] = Place(unit["id"], made["id"])
    rows = [
        Usage("2026-10-31", "anna", found["a"].project, "default", "team-a", held=2 * HOUR, runs=1),
        Usage("2026-11-01", "anna", found["a"].project, "default", "team-a", 3 * HOUR, HOUR, HOUR // 4, 2, 1),
        Usage("2026-11-02", "=bob", found["b"].project, "a100", "team-b", held=HOUR // 2, runs=1),
        Usage("2026-11-02", "anna", "no-more", "default", "old", held=HOUR),
    ]
    api.stage.loop.call(lambda draft: [draft.put(row) for row in rows] and None)
    return found


def told(api: Api, **query: str) -> list[tuple[object, ...]]:
    rows = api.get(USAGE, **{"from": "2026-10-01", "to": "2026-11-30", **query})["rows"]
    return [(*(row[key] for key in ("month", "day", "user", "project", "nodePool") if key in row),
             row["allocatedGpuSeconds"] / 3600) for row in rows]  # fmt: skip


def test_usage_is_grouped_as_asked_for(api: Api, held: dict[str, Place]) -> None:
    assert told(api) == [("=bob", "team-b", 0.5), ("anna", "old (deleted)", 1), ("anna", "team-a", 5)]
    assert told(api, by="month,user") == [
        ("2026-11", "=bob", 0.5), ("2026-10", "anna", 2), ("2026-11", "anna", 4),
    ]  # fmt: skip
    assert told(api, by="nodePool") == [("a100", 0.5), ("default", 6)]
    whole = api.get(USAGE, **{"from": "2026-11-01", "to": "2026-11-01", "by": "day"})
    assert whole["total"] == {
        "allocatedGpuSeconds": 3 * 3600, "measuredGpuSeconds": 3600, "usedGpuSeconds": 900, "runs": 2,
        "failed": 1,
    }  # fmt: skip
    assert whole["rows"] == [whole["total"] | {"day": "2026-11-01"}]
    assert api.get(USAGE, **{"from": "2020-01-01", "to": "2020-01-01"})["rows"] == []


def test_usage_as_a_table_for_spreadsheets(api: Api, held: dict[str, Place]) -> None:
    answer = api.http.get(USAGE, params={"from": "2026-10-01", "to": "2026-11-30", "format": "csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    rows = [*csv.reader(io.StringIO(answer.text))]
    assert rows[0] == ["user", "project", "allocatedGpuSeconds", "measuredGpuSeconds", "usedGpuSeconds",
                       "runs", "failed"]  # fmt: skip
    assert rows[1][:3] == ["'=bob", "team-b", "1800.0"], "no program takes a name for a formula"


def test_what_runs_counts_until_now(api: Api) -> None:
    api.running(api.submit("runs", 2)["workloadId"])
    (row,) = api.get(USAGE)["rows"]
    assert row["project"] == "default" and row["allocatedGpuSeconds"] > 0 and row["runs"] == 0


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"by": "colour"}, "cannot be grouped by 'colour'"),
        ({"from": "yesterday"}, "'yesterday' is not a day"),
        ({"from": "2026-11-02", "to": "2026-11-01"}, "is before"),
        ({"format": "xml"}, ""),
    ],
)
def test_what_cannot_be_asked(quiet: Api, query: dict[str, str], words: str) -> None:
    assert words in quiet.get(USAGE, 400, **query)["message"]


def test_usage_is_told_within_the_scope_and_of_ones_own(api: Api, held: dict[str, Place]) -> None:
    def seen(headers: dict[str, str]) -> set[str]:
        query = {"from": "2026-10-01", "to": "2026-11-30", "by": "project"}
        return {row["project"] for row in api.call("GET", USAGE, params=query, headers=headers)["rows"]}

    assert seen(program(api, "u", (VIEWER.id, held["a"]))) == {"team-a"}
    assert seen(program(api, "v", (DEPARTMENT_VIEWER.id, Place(held["b"].department)))) == {"team-b"}
    assert seen(program(api, "w", (PRACTITIONER.id, held["a"]))) == set(), "none of it is its own"


# -- limits -----------------------------------------------------------------------------------------


def test_limits_are_set_told_replaced_and_removed(api: Api, held: dict[str, Place]) -> None:
    assert api.get(LIMITS) == {"limits": []}
    (made,) = api.call("PUT", LIMITS, json={"user": "eve", "gpus": 2.5, "gpuHours": 100})["limits"]
    assert made == {"user": "eve", "project": None, "gpus": 2.5, "pending": None, "gpuHours": 100,
                    "holdsGpus": 0, "hasPending": 0, "usedGpuHours": 0}  # fmt: skip
    api.call("PUT", LIMITS, json={"projectName": "team-a", "pending": 3})
    api.call("PUT", LIMITS, json={"user": "eve", "pending": 7})
    found = {(it["user"], it["project"]): (it["gpus"], it["pending"]) for it in api.get(LIMITS)["limits"]}
    assert found == {("eve", None): (None, 7), (None, "team-a"): (None, 3)}
    api.call("DELETE", LIMITS, 204, params={"user": "eve"})
    api.call("DELETE", LIMITS, 404, params={"user": "eve"})
    api.call("DELETE", LIMITS, 404, params={"projectName": "nowhere"})
    records = [record for _, record in api.stage.service.audited(0, 2**60) if record.entity == "Limit"]
    assert [(record.action, record.status) for record in records[:1]] == [("update", 0)]
    assert {change.field for change in records[0].changes} >= {"Limit.subject", "Limit.running"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"user": "anna"}, "No limit is named"),
        ({"gpus": -1}, ""),
        ({"gpus": 1, "colour": 1}, "colour"),
        ({"gpus": 1, "user": "a\u202eb"}, ""),
        ({"pending": 1.5}, ""),
    ],
)
def test_what_can_be_no_limit(quiet: Api, body: dict[str, object], words: str) -> None:
    answer = quiet.call("PUT", LIMITS, 400, json=body)
    assert words in answer["detail"] + str(answer["fields"])


def test_a_limit_for_a_project_that_is_not_there(quiet: Api) -> None:
    quiet.call("PUT", LIMITS, 404, json={"gpus": 1, "projectName": "nowhere"})


def test_who_is_told_of_limits(api: Api, held: dict[str, Place]) -> None:
    rows = [
        Allowance("anna", "", running=1000),
        Allowance("", "", running=2000),
        Allowance("", held["a"].project, running=3000),
        Allowance("anna", held["b"].project, running=4000),
    ]
    api.stage.loop.call(lambda draft: [draft.put(row) for row in rows] and None)

    def seen(headers: dict[str, str]) -> set[float]:
        return {row["gpus"] for row in api.call("GET", LIMITS, headers=headers)["limits"]}

    assert seen({}) == {1, 2, 3, 4}
    assert seen(program(api, "x", (PRACTITIONER.id, held["a"]))) == {2, 3}, "not anna's"
    assert seen(program(api, "y", (VIEWER.id, held["b"]))) == {2, 3, 4}
    researcher = program(api, "z", (PRACTITIONER.id, held["a"]))
    api.call("PUT", LIMITS, 403, json={"gpus": 1}, headers=researcher)


def test_one_pending_job_too_many_is_429_with_its_numbers(api: Api) -> None:
    api.call("PUT", LIMITS, json={"pending": 1})
    api.running(api.submit("runs", 2)["workloadId"])
    api.submit("waits", 1)
    body = {"name": "more", "projectName": "default", "spec": {"image": IMAGE}}
    refused = api.call("POST", "/api/v1/workloads/trainings", 429, json=body)
    assert refused["reason"] == "user-limit" and "has 1 pending job; the limit is 1" in refused["message"]
