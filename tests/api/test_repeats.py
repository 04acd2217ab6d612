"""One answer for one Idempotency-Key, of every POST that makes something."""

import threading
from pathlib import Path
from typing import Any

import pytest

from pliant.api.repeats import BY_THEMSELVES, takes_key
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


def test_a_refused_request_uses_no_key_up_and_a_rehearsed_one_neither(api: Api) -> None:
    api.call("POST", PROJECTS, 400, json={"name": "No"}, headers=keyed("k"))
    api.call("POST", f"{PROJECTS}?dryRun=true", 200, json={"name": "team"}, headers=keyed("k"))
    api.call("POST", PROJECTS, 201, json={"name": "team"}, headers=keyed("k"))


def test_a_key_is_the_callers_own(api: Api) -> None:
    bot = program(api, "bot", (SYSTEM.id, TENANT))
    mine = api.call("POST", "/api/v1/access-keys", 201, json={"name": "key"}, headers=keyed("k"))
    body = {"name": "key"}
    its = api.call("POST", "/api/v1/access-keys", 201, json=body, headers=keyed("k", **bot))
    assert mine["id"] != its["id"]
    assert api.call("POST", "/api/v1/access-keys", 201, json=body, headers=keyed("k", **bot)) == its


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


def test_the_description_names_it_where_it_is_taken(quiet: Api) -> None:
    paths = quiet.get("/openapi.json")["paths"]
    for path, item in paths.items():
        named = [it["name"] for it in item.get("post", {}).get("parameters", ())]
        taken = "post" in item and "security" in item["post"] and takes_key(path)
        assert named.count("Idempotency-Key") == (1 if taken or path in BY_THEMSELVES else 0), path
