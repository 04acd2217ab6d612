"""Decisions as clients read them in the plan: the rule that protects work, without the names of others."""

from dataclasses import replace
from datetime import datetime

from pliant.api.responses.history import seen
from pliant.control.board.publisher import Publisher
from pliant.model.event import Event, EventKind
from pliant.model.reason import Named, Preempted, Reclaimed
from tests.api.conftest import Api
from tests.api.stage import until

WORKLOADS = "/api/v1/workloads"


def settings(api: Api, what: str, name: str, **given: int) -> None:
    """Minimum runtimes of a project or department in the default pool."""
    [row] = [row for row in api.get(f"/api/v1/org-unit/{what}")[what] if row["name"] == name]
    resources = [{"nodePool": {"name": "default"}, "gpu": {"deserved": 1}, **given}]
    api.call("PATCH", f"/api/v1/org-unit/{what}/{row['id']}", json={"resources": resources})


def ends(item: dict) -> float | None:
    """Seconds after its start until which it is protected."""
    if item["guaranteedRuntimeEndsAt"] is None:
        return None
    run = datetime.fromisoformat(item["guaranteedRuntimeEndsAt"])
    return round((run - datetime.fromisoformat(item["phaseUpdatedAt"])).total_seconds(), -1)


def test_the_guaranteed_runtime_is_what_project_and_department_say(api: Api) -> None:
    identity = api.submit("a")["workloadId"]
    api.running(identity)
    assert ends(api.item(identity)) is None and api.item(identity)["protection"] is None
    api.call("PUT", "/api/v1/node-pools/default", json={"name": "default", "minRuntimeSeconds": 600})
    until(lambda: ends(api.item(identity)) == 600)
    settings(api, "departments", "default", reclaimMinRuntimeSeconds=300, preemptMinRuntimeSeconds=300)
    until(lambda: ends(api.item(identity)) == 300)
    settings(api, "projects", "default", reclaimMinRuntimeSeconds=1200, preemptMinRuntimeSeconds=900)
    until(lambda: ends(api.item(identity)) == 900)
    protection = api.item(identity)["protection"]
    assert (protection["preemption"]["level"], protection["preemption"]["name"]) == ("project", "default")
    settings(api, "projects", "default", reclaimMinRuntimeSeconds=0, preemptMinRuntimeSeconds=0)
    until(lambda: ends(api.item(identity)) is None)


def test_who_is_not_preemptible_needs_no_protection(api: Api) -> None:
    identity = api.submit("a", kind="workspaces")["workloadId"]
    api.running(identity)
    api.call("PUT", "/api/v1/node-pools/default", json={"name": "default", "minRuntimeSeconds": 600})
    assert api.item(identity)["guaranteedRuntimeEndsAt"] is None


def test_the_board_shows_the_standings_of_the_plan_and_computes_none(api: Api) -> None:
    loop = api.stage.loop
    before = loop.look(lambda state: state.standings)
    told = tuple(it._replace(fair_share=7_000, quota=3_000) for it in before)
    publisher = Publisher(loop.state)
    loop.state.standings, loop.state.moved = told, True
    publisher.publish(loop.clock.now(), 0)
    uses = [use for view in publisher.board.projects.values() for use in view.uses]
    assert uses and {(use.fair_share, use.quota) for use in uses} == {(7_000, 3_000)}


OTHER = Named("workload", "w-2", "secret-job", "p-2", "secret-team")
TEAM = Named("project", "p-2", "secret-team", "p-2")
OWN = Named("project", "p-1", "mine", "p-1")
TAKEN = Reclaimed(2000, OTHER, TEAM, "quota", 0, 2000, OWN, 4000, 2000)


def event(reason: Reclaimed | Preempted) -> Event:
    return Event(
        "w-1", 0, "scheduler", EventKind.RECLAIMED, reason.text(0), reason.code, reason.numbers,
        names=reason.names,
    )  # fmt: skip


def test_history_leaves_out_names_and_keys_of_other_projects() -> None:
    told = event(TAKEN)
    less = seen(told, lambda project: project == "p-1")
    assert "secret" not in f"{less.message}{less.numbers}{less.names}" and "p-2" not in str(less.names)
    assert dict(less.numbers) == {
        name: value for name, value in told.numbers if name not in ("beneficiary", "project")
    }
    assert seen(told, lambda project: True) == told
    assert seen(replace(told, reason=""), lambda project: False).message == told.message


def test_history_of_an_older_version_names_nobody_to_those_who_may_not_read_all() -> None:
    old = replace(event(TAKEN), names=())
    assert seen(old, lambda project: True) == old
    less = seen(old, lambda project: project in ("p-1", "p-2"))
    assert "secret" not in f"{less.message}{less.numbers}"
    unknown = seen(replace(event(TAKEN), reason="of-a-newer-version"), lambda project: False)
    assert "secret" not in f"{unknown.message}{unknown.numbers}{unknown.names}"


def test_decisions_of_all_workloads_newest_first_page_by_page(api: Api) -> None:
    """Deleted workloads too; page by page the same as at once."""
    path = "/api/v1/decisions"
    first = api.submit("first")["workloadId"]
    api.running(first)
    api.running(api.submit("second")["workloadId"])
    api.call("DELETE", f"{WORKLOADS}/{first}", 202)
    until(lambda: "first is gone." in [it["message"] for it in api.get(path, kind="Deleted")["events"]])
    told = api.get(path, limit=500)
    assert "next" not in told
    numbers = [int(it["id"]) for it in told["events"]]
    assert numbers == sorted(numbers, reverse=True)
    assert {it["involvedObject"]["name"] for it in told["events"]} == {"first", "second"}
    placed = [it for it in told["events"] if it["code"] == "placed"]
    assert placed and all(it["message"].startswith("Allocated 1 GPU") for it in placed)
    paged: list[str] = []
    before: dict[str, int] = {}
    while True:
        part = api.get(path, limit=3, **before)
        paged += [it["id"] for it in part["events"]]
        if "next" not in part:
            break
        before = {"before": part["next"]}
    assert paged == [it["id"] for it in told["events"]]
    assert {it["reason"] for it in api.get(path, kind="Running")["events"]} == {"Running"}
    assert api.get(path, sinceSeconds=3600)["events"] == told["events"]


def test_fairness_hour_by_hour_comes_to_the_sum(api: Api) -> None:
    api.running(api.submit("a")["workloadId"])
    hours = api.get("/api/v1/audit/fairness/hours")["hours"]
    total = api.get("/api/v1/audit/fairness")["projects"]
    assert hours and [it["began"] for it in hours] == sorted(it["began"] for it in hours)
    for row in total:
        parts = [it for one in hours for it in one["projects"] if it["project"] == row["project"]]
        assert abs(sum(it["received"] for it in parts) - row["received"]) < 0.01
