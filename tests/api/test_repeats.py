"""One answer for one Idempotency-Key, of every POST that makes something."""

import re
import threading
from pathlib import Path
from typing import Any

import pytest

from pliant.api.paths_elsewhere import KINDS
from pliant.api.repeats import BY_THEMSELVES, Repeats, takes_key
from pliant.model.rights import SYSTEM, TENANT
from tests.api.conftest import Api
from tests.api.people import program

ACCOUNTS = "/api/v1/service-accounts"
PROJECTS = "/api/v1/org-unit/projects"


def keyed(key: str, **more: str) -> dict[str, str]:
    return {"Idempotency-Key": key, **more}


@pytest.mark.parametrize(
    ("path", "body", "status", "counted"),
    [
        (PROJECTS, {"name": "team"}, 201, PROJECTS),
        (ACCOUNTS, {"name": "bot"}, 201, ACCOUNTS),
        ("/api/v1/access-keys", {"name": "mine"}, 201, "/api/v1/access-keys"),
        ("/api/v1/users", {"email": "anna"}, 201, "/api/v1/users"),
        (
            "/api/v1/asset/credentials/password",
            {"meta": {"name": "robot"}, "spec": {"password": "hunter2-of-it"}},
            202,
            "/api/v1/asset/credentials/password",
        ),
    ],
)
def test_the_same_key_makes_one(
    api: Api, tmp_path: Path, path: str, body: dict[str, Any], status: int, counted: str
) -> None:
    first = api.http.post(path, json=body, headers=keyed("k1"))
    again = api.http.post(path, json={**dict(reversed(body.items()))}, headers=keyed("k1"))
    assert (first.status_code, again.status_code, again.content) == (status, status, first.content)
    other = api.http.post(path, json={**body, "name": "else"}, headers=keyed("k1"))
    assert other.status_code == 409 and "used for another request" in other.json()["message"]
    assert api.http.post(PROJECTS, json={"name": "x"}, headers=keyed("k1")).status_code == 409
    assert api.http.post(path, json=body, headers=keyed("k2")).status_code in (409, status)
    secrets = [it for key in ("clientSecret", "tempPassword", "token") if (it := first.json().get(key))]
    disk = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert not [it for it in [*secrets, "hunter2-of-it"] if it.encode() in disk], "kept sealed only"


LATER = "2999-01-01T00:00:00Z"
READ = "made, and read again"
"""A repeated request is answered with what GET returns at that time."""

MADE: dict[str, tuple[Any, str]] = {
    PROJECTS: ({"name": "team"}, READ),
    "/api/v1/org-unit/departments": ({"name": "lab"}, READ),
    "/api/v1/node-pools": ({"name": "fast", "labelKey": "pool", "labelValue": "fast"}, READ),
    "/api/v1/network-topologies": ({"name": "racks", "levels": ["rack"]}, ""),
    "/api/v1/bookings": ({"name": "fix", "end": LATER, "maintenance": True, "nodes": ["node-0"]}, ""),
    "/api/v1/priority-classes": ({"name": "urgent", "value": 90}, ""),
    "/api/v1/asset/environment": ({"meta": {"name": "it"}, "spec": {"image": "ubuntu"}}, ""),
    "/api/v1/asset/compute": ({"meta": {"name": "it"}, "spec": {"gpuDevicesRequest": 1}}, ""),
    "/api/v1/workload-templates/trainings": ({"meta": {"name": "it"}, "spec": {"image": "ubuntu"}}, ""),
    "/api/v1/asset/datasource/git": (
        {"meta": {"name": "it"}, "spec": {"repository": "https://host/it.git", "path": "/code"}},
        "",
    ),
    "/api/v1/asset/datasource/host-path": (
        {"meta": {"name": "it"}, "spec": {"path": "/data", "mountPath": "/data"}},
        "",
    ),
    "/api/v1/asset/datasource/nfs": (
        {"meta": {"name": "it"}, "spec": {"server": "nfs", "path": "/data", "mountPath": "/data"}},
        "",
    ),
    "/api/v1/asset/credentials/password": ({"meta": {"name": "it"}, "spec": {"password": "hunter2"}}, ""),
    "/api/v1/asset/credentials/generic-secret": (
        {"meta": {"name": "it"}, "spec": {"keyValuePairs": [{"key": "a", "value": "b"}]}},
        "",
    ),
    "/api/v1/org-unit/reports": (
        {"name": "it", "start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
        "",
    ),
    "/api/v1/notifications": ({"kind": "mail", "address": "a@b.example"}, ""),
    "/api/v1/subscriptions": (
        {"channels": ["a@b.example"], "events": [{"category": "workloads", "types": ["failure"]}]},
        "",
    ),
    "/api/v1/users": ({"email": "anna"}, ""),
    "/api/v1/service-accounts": ({"name": "bot"}, ""),
    "/api/v1/access-keys": ({"name": "mine"}, ""),
    "/api/v1/authorization/access-rules": (
        {"roleId": 1, "subjectType": "service-account", "subjectId": "$BOT", "scopeType": "tenant"},
        "",
    ),
    "/api/v2/authorization/roles": (
        {"name": "Looks", "permissionSets": [{"id": "nodesReadAccess"}]},
        "",
    ),
    "/api/v1/service-accounts/$BOT/secret": ({}, ""),
    "/api/v1/users/$ANNA/password": ({}, ""),
    "/api/v1/notifications/test": ({}, ""),
    "/api/v1/access-keys/$KEY/secret": ({}, ""),
}
"""Every POST that a repeated call would carry out a second time."""


AGAIN = re.compile(
    r"/(suspend|resume|cancel|cordon|uncordon|drain|drains|logout|batch|batch-create|batch-patch|restore|input"
    r"|resize|preview|what-if|email|workloads|enable|disable)$"
)
"""Ends of paths whose POST is idempotent: a second call changes nothing more."""


def test_each_post_that_takes_a_key_is_of_one_kind(quiet: Api) -> None:
    """`others`: `signal` sends before it is recorded; `me/password` is the last one that keeps its answer."""
    others = {"/api/v1/workloads/{identity}/signal", "/api/v1/me/password"}
    made = {re.sub(r"\$\w+", "{key}", path) for path in MADE}
    made |= {path.replace("trainings", kind) for path in made for kind in KINDS if "templates" in path}
    for path, item in quiet.get("/openapi.json")["paths"].items():
        if "security" in item.get("post", {}) and takes_key(path) and path not in BY_THEMSELVES:
            kinds = (path in made, AGAIN.search(path) is not None, path in others)
            assert sum(kinds) == 1, (path, kinds)


@pytest.mark.parametrize("path", MADE)
def test_the_answer_is_in_the_transaction_of_the_change(
    api: Api, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the server were killed right after the change was on disk."""
    known: dict[str, str] = {}
    text = f"{path} {MADE[path][0]}"
    if "$BOT" in text:
        known["$BOT"] = api.call("POST", ACCOUNTS, 201, json={"name": "known"})["id"]
    if "$ANNA" in text:
        known["$ANNA"] = api.call("POST", "/api/v1/users", 201, json={"email": "known"})["id"]
    if "$KEY" in text:
        known["$KEY"] = api.call("POST", "/api/v1/access-keys", 201, json={"name": "known"})["id"]
    if path.endswith("/test"):
        api.call("POST", "/api/v1/notifications", 201, json={"kind": "mail", "address": "a@b.example"})
    at, sent = path, MADE[path][0]
    for name, value in known.items():
        at = at.replace(name, value)
        sent = {key: value if it == name else it for key, it in sent.items()}

    def killed(*_: Any) -> None:
        raise AssertionError("a second transaction")

    monkeypatch.setattr(Repeats, "_remember", killed)
    first = api.http.post(at, json=sent, headers=keyed("k"))
    again = api.http.post(at, json=sent, headers=keyed("k"))
    assert 200 <= first.status_code < 300, first.text
    assert again.status_code == first.status_code
    if MADE[path][1] == READ:
        assert again.json()["id"] == first.json()["id"]
    else:
        assert again.content == first.content


def test_a_refused_request_uses_no_key_up_and_a_rehearsed_one_neither(api: Api) -> None:
    api.call("POST", PROJECTS, 400, json={"name": "No"}, headers=keyed("k"))
    api.call("POST", f"{PROJECTS}?dryRun=true", 200, json={"name": "team"}, headers=keyed("k"))
    api.call("POST", PROJECTS, 201, json={"name": "team"}, headers=keyed("k"))


def test_a_key_is_the_callers_own(api: Api) -> None:
    bot = program(api, "bot", (SYSTEM.id, TENANT))
    mine = api.call("POST", ACCOUNTS, 201, json={"name": "mine"}, headers=keyed("k"))
    body = {"name": "its"}
    its = api.call("POST", ACCOUNTS, 201, json=body, headers=keyed("k", **bot))
    assert mine["id"] != its["id"]
    assert api.call("POST", ACCOUNTS, 201, json=body, headers=keyed("k", **bot)) == its


def test_where_it_has_no_effect_it_is_refused(api: Api) -> None:
    for path in ("/api/v1/server/backup", "/api/v1/workloads/x/exec"):
        told = api.call("POST", path, 400, json={}, headers=keyed("k"))
        assert "has no effect here" in told["message"]
    for key in ("x" * 256, "a b"):
        assert (
            "not valid" in api.call("POST", PROJECTS, 400, json={"name": "a"}, headers=keyed(key))["message"]
        )


def test_many_at_once_make_one(api: Api) -> None:
    answers, start = [], threading.Barrier(6)

    def send() -> None:
        start.wait(60)
        answers.append(api.http.post(ACCOUNTS, json={"name": "bot"}, headers=keyed("k")).content)

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == 6
    assert len(set(answers)) == 1, answers


@pytest.mark.parametrize("name", ["token", "exec", "server"])
def test_a_job_may_be_called_like_what_takes_none(name: str) -> None:
    assert takes_key(f"/api/v1/workloads/trainings/{name}/suspend")
    assert not takes_key(f"/api/v1/workloads/{name}/exec")


def test_the_description_names_it_where_it_is_taken(quiet: Api) -> None:
    paths = quiet.get("/openapi.json")["paths"]
    for path, item in paths.items():
        named = [it["name"] for it in item.get("post", {}).get("parameters", ())]
        taken = "post" in item and "security" in item["post"] and takes_key(path)
        assert named.count("Idempotency-Key") == (1 if taken or path in BY_THEMSELVES else 0), path
