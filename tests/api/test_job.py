"""The HTTP API that jobs use: what they are told and what they report."""

import threading
import time
from typing import Any

import pytest
from fastapi.testclient import TestClient

from pliant.api.identity.auth import attempt_token
from tests.api.conftest import Api
from tests.api.stage import SECRET, until


class Job:
    """Sends requests as one attempt."""

    def __init__(self, api: Api, workload: str, attempt: int = 1) -> None:
        self.base = f"/api/v1/attempts/{workload}/task-0/{attempt}"
        token = attempt_token(f"{workload}/task-0/{attempt}", SECRET)
        self.http = TestClient(api.stage.app(), headers={"Authorization": f"Bearer {token}"})

    def told(self, after: int = -1, wait: int = 0) -> Any:
        answer = self.http.get(
            f"{self.base}/allocation", params={"after": after}, headers={"Prefer": f"wait={wait}"}
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, what: str, body: Any) -> Any:
        return self.http.post(f"{self.base}/{what}", json=body)

    def link(self, **more: Any) -> Any:
        return self.post("link", {"protocol": 1, "pid": 5, "liveResize": True, **more})


@pytest.fixture
def wide(api: Api) -> str:
    """An elastic workload that holds both GPUs of the one node."""
    identity = api.submit("wide", gpus=1, elastic=True)["workloadId"]
    until(lambda: api.item(identity)["allocatedResources"]["gpu"] == 2)
    api.running(identity)
    return str(identity)


def states(document: Any) -> list[tuple[str, int]]:
    return [(entry["state"], len(entry["gpus"])) for entry in document["tasks"]]


def test_a_job_that_can_is_resized_live_and_hears_of_it_at_once(api: Api, wide: str) -> None:
    job = Job(api, wide)
    assert job.link().status_code == 200
    before = job.told()
    assert states(before) == [("active", 2)]
    heard: list[Any] = []
    listener = threading.Thread(target=lambda: heard.append(job.told(before["version"], wait=20)))
    listener.start()
    with api.stage.engine.guard:
        api.stage.frozen.set()  # it keeps its GPU until the listener has heard of the order
    other = api.submit("other")["workloadId"]
    listener.join(60)
    api.stage.frozen.clear()
    assert states(heard[0]) == [("active", 1), ("draining", 1)]
    going = heard[0]["tasks"][1]
    assert going["deadline"] > heard[0]["now"], "the time that is left can be told without one's own clock"
    api.running(other)
    assert states(job.told()) == [("active", 1)]
    api.call("DELETE", f"/api/v1/workloads/{other}", status=202)
    until(lambda: states(job.told()) == [("active", 2)])
    assert len(api.get(f"/api/v1/workloads/{wide}/pods")["pods"]) == 1
    assert api.get(f"/api/v1/workloads/{wide}/pods")["pods"][0]["attempt"] == 1, "it was never restarted"


def test_one_that_says_nothing_is_restarted_as_ever(api: Api, wide: str) -> None:
    other = api.submit("other")["workloadId"]
    api.running(other)
    until(lambda: api.get(f"/api/v1/workloads/{wide}/pods")["pods"][0]["attempt"] == 2)


def test_a_long_poll_without_news_gives_the_same_when_time_is_up(api: Api, wide: str) -> None:
    job = Job(api, wide)
    document = job.told()
    began = time.monotonic()
    again = job.told(document["version"], wait=1)
    assert again["version"] == document["version"]
    assert time.monotonic() - began >= 0.9


def test_many_who_wait_hold_no_threads(api: Api, wide: str) -> None:
    job = Job(api, wide)
    version = job.told()["version"]
    with TestClient(api.stage.app(), headers=dict(job.http.headers)) as http:  # one event loop for all
        before = threading.active_count()
        waiting = [
            threading.Thread(
                target=http.get,
                args=(f"{job.base}/allocation",),
                kwargs={"params": {"after": version}, "headers": {"Prefer": "wait=30"}},
            )
            for _ in range(60)
        ]
        for one in waiting:
            one.start()
        until(lambda: threading.active_count() >= before + 60)
        assert http.get("/healthz").status_code == 200
        assert all(one.is_alive() for one in waiting), "they wait, and the event loop is free"
        assert threading.active_count() <= before + 60 + 2, (
            "one thread that listens, besides the clients' own"
        )
        api.submit("other")  # that is news for them
        for one in waiting:
            one.join()


def test_a_link_of_another_version_is_refused_with_the_cure(api: Api, wide: str) -> None:
    answer = Job(api, wide).link(protocol=9)
    assert answer.status_code == 409
    assert "version 9" in answer.json()["message"] and "same version" in answer.json()["details"]


def test_clocks_that_differ_are_told(api: Api, wide: str) -> None:
    ahead = Job(api, wide).link(nowMs=api.stage.clock.now() + 3_600_000).json()["aheadMs"]
    assert 3_590_000 < ahead < 3_610_000


def test_an_older_attempt_changes_nothing(api: Api, wide: str) -> None:
    other = api.submit("other")["workloadId"]
    api.running(other)
    until(lambda: api.get(f"/api/v1/workloads/{wide}/pods")["pods"][0]["attempt"] == 2)
    late = Job(api, wide, 1)
    for what, body in (
        ("link", {"protocol": 1, "pid": 5, "liveResize": True}),
        ("acks", {"version": 1, "kind": "drained", "gpus": ["GPU-0-1"]}),
        ("progress", {"step": 9}),
    ):
        answer = late.post(what, body)
        assert (answer.status_code, "is over" in answer.json()["message"]) == (409, True), what
    assert api.item(wide)["progress"] is None


def test_progress_is_shown_and_its_history_is_bounded(api: Api, wide: str) -> None:
    job = Job(api, wide)
    for step in range(1, 200):
        body = {
            "state": "training",
            "step": step,
            "stepsTotal": 400,
            "world": 2,
            "goodput": 2210.5,
            "loss": 1 / step,
            "stepMsBySize": {"1": 41, "2": 29.5},
        }
        assert job.post("progress", body).status_code == 200
    shown = api.item(wide)["progress"]
    assert (shown["step"], shown["stepsTotal"], shown["goodput"]) == (199, 400, 2210.5)
    assert shown["stepMsBySize"] == {"1": 41.0, "2": 29.5}
    points = api.get(f"/api/v1/workloads/{wide}/progress")["points"]
    assert len(points) <= 120
    assert [point["step"] for point in points] == sorted({point["step"] for point in points})
    assert (points[0]["step"], points[-1]["step"]) == (1, 199)


@pytest.mark.parametrize(
    "body", [{"step": -1}, {"loss": "NaN"}, {"goodput": -3}, {"stepMsBySize": {str(n): 1 for n in range(99)}}]
)
def test_a_report_that_makes_no_sense_is_refused(api: Api, wide: str, body: Any) -> None:
    assert Job(api, wide).post("progress", body).status_code == 400
    assert api.item(wide)["progress"] is None


def test_nothing_has_no_allocation(api: Api) -> None:
    api.submit("big", gpus=2)
    waits = api.submit("waits", gpus=2)["workloadId"]
    answer = Job(api, waits).http.get(f"{Job(api, waits).base}/allocation")
    assert answer.status_code == 404


def test_a_server_that_is_about_to_end_answers_those_who_wait(api: Api, wide: str) -> None:
    job = Job(api, wide)
    version = job.told()["version"]
    job.http = TestClient(api.stage.app(closing=lambda: True), headers=dict(job.http.headers))
    began = time.monotonic()
    assert job.told(version, wait=30)["version"] == version
    assert time.monotonic() - began < 25
