"""Who may ask for what."""

import os
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from joserfc import jwt
from joserfc.jwk import OctKey

from pliant.api.errors import Unauthorized
from pliant.api.identity.auth import LIFE, REFRESH_LIFE, Authority, attempt_token
from pliant.api.identity.tokens import ACCESS
from pliant.store.folder import StateFolder
from pliant.wire.proof import named
from tests.api.conftest import Api
from tests.api.stage import SECRET, TOKEN


@pytest.fixture
def stranger(quiet: Api) -> TestClient:
    return TestClient(quiet.stage.app(), raise_server_exceptions=False)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/version"])
def test_health_is_for_everybody(stranger: TestClient, path: str) -> None:
    assert stranger.get(path).status_code == 200


@pytest.mark.parametrize(
    "path", ["/api/v1/workloads", "/api/v1/whoami", "/openapi.json", "/metrics", "/api/v1/nothing"]
)
def test_all_else_needs_a_token(stranger: TestClient, path: str) -> None:
    answer = stranger.get(path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["reason"] == "unauthorized"


def test_metrics_are_free_on_the_same_machine(quiet: Api) -> None:
    near = TestClient(quiet.stage.app(), client=("127.0.0.1", 1))
    assert near.get("/metrics").status_code == 200
    assert near.get("/api/v1/whoami").status_code == 401


ATTEMPT = attempt_token("w1/task-0/1", SECRET)


@pytest.mark.parametrize(
    "header",
    [
        "Bearer wrong",
        "Bearer ",
        "Basic abc",
        "Bearer a.b.c",
        "Bearer ünï",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[1:]}",
        f"Bearer {ATTEMPT[:-1]}",
        f"Bearer {ATTEMPT}0",
    ],
)
def test_wrong_tokens(stranger: TestClient, header: str) -> None:
    answer = stranger.get("/api/v1/whoami", headers={"Authorization": header.encode("latin-1")})
    assert answer.status_code == 401, answer.text


def test_the_token_of_the_state_folder_is_its_owner(quiet: Api) -> None:
    who = quiet.get("/api/v1/whoami")
    assert who["user"].partition("@")[0] == who["id"]
    assert "@" in who["user"]


def test_an_account_without_a_name_has_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert Authority(lambda: "token", b"secret").owner == str(os.getuid())


@pytest.mark.parametrize(
    "body",
    [
        {"grantType": "client_credentials", "clientID": "anna", "clientSecret": TOKEN},
        {"grantType": "app_token", "appID": "anna", "appSecret": TOKEN},
        {"grantType": "password", "username": "anna", "password": TOKEN},
    ],
)
def test_every_grant_gives_a_token_with_a_name(stranger: TestClient, body: dict[str, str]) -> None:
    issued = stranger.post("/api/v1/token", json=body).json()
    assert issued["expiresIn"] == LIFE
    assert stranger.get("/api/v1/whoami", headers=bearer(issued["accessToken"])).json()["id"] == "anna"
    # A refresh token only refreshes.
    assert stranger.get("/api/v1/whoami", headers=bearer(issued["refreshToken"])).status_code == 401
    again = {"grantType": "refresh_token", "refreshToken": issued["refreshToken"]}
    fresh = stranger.post("/api/v1/token", json=again).json()
    assert stranger.get("/api/v1/whoami", headers=bearer(fresh["accessToken"])).json()["id"] == "anna"
    again["refreshToken"] = issued["accessToken"]
    assert stranger.post("/api/v1/token", json=again).status_code == 401


def test_a_token_by_form(stranger: TestClient) -> None:
    form = {"grant_type": "client_credentials", "client_id": "anna", "client_secret": TOKEN}
    issued = stranger.post("/api/v2/token", data=form).json()
    assert issued["token_type"] == "Bearer"
    assert stranger.get("/api/v1/whoami", headers=bearer(issued["access_token"])).status_code == 200


REALM = "/auth/realms/acme/protocol/openid-connect/token"
ANNA = {"grantType": "client_credentials", "clientID": "anna", "clientSecret": TOKEN}
ANNA_BY_FORM = {"grant_type": "client_credentials", "client_id": "anna", "client_secret": TOKEN}


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/api/v1/token", {"json": {"grantType": "app_token", "AppId": "anna", "AppSecret": TOKEN}}),
        ("/api/v1/token", {"json": {name.upper(): value for name, value in ANNA.items()}}),
        ("/api/v1/token", {"data": ANNA}),
        ("/api/v1/token", {"content": f'{{"grantType":"app_token","AppId":"anna","AppSecret":"{TOKEN}"}}'}),
        ("/api/v2/token", {"json": {"grant_type": "password", "username": "anna", "password": TOKEN}}),
        (REALM, {"data": ANNA_BY_FORM}),
        (REALM, {"data": {**ANNA_BY_FORM, "scope": "openid"}}),
    ],
)
def test_tokens_in_every_spelling_that_is_typed(stranger: TestClient, path: str, sent: dict) -> None:
    answer = stranger.post(path, **sent)
    assert answer.status_code == 200, answer.text
    issued = answer.json()
    access = issued.get("accessToken") or issued["access_token"]
    assert stranger.get("/api/v1/whoami", headers=bearer(access)).json()["id"] == "anna"


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"json": {"grantType": "password", "usrname": "anna", "password": TOKEN}}, "usrname"),
        ({"json": {"grantType": "password", "username": 7, "password": TOKEN}}, "username"),
        ({"json": {"grantType": "password", "username": {"a": 1}, "password": TOKEN}}, "username"),
        ({"json": {"grantType": "app_token", "appId": "a", "AppID": "b", "appSecret": TOKEN}}, "appID"),
        ({"json": {"grantType": "exchange_token"}}, "grantType"),
        ({"data": {"grant_type": "password", "username": "a\0b", "password": TOKEN}}, "username"),
    ],
)
def test_a_refused_token_names_the_field(stranger: TestClient, sent: dict, field: str) -> None:
    answer = stranger.post("/api/v1/token", **sent)
    assert answer.status_code == 400, answer.text
    assert [entry["field"] for entry in answer.json()["fields"]] == [field]


@pytest.mark.parametrize(
    "raw",
    [b'{"grantType": "\\ud800"}', b'{"\\udfff": "x"}', b"{" * 100_000, b'{"a":' * 100_000, b"{}", b""],
    ids=["half a value", "half a name", "deep lists", "deep objects", "nothing in it", "nothing"],
)
def test_what_is_no_token_request(stranger: TestClient, raw: bytes) -> None:
    for path in ("/api/v1/token", "/api/v2/token", REALM):
        assert stranger.post(path, content=raw).status_code == 400


def test_the_reference_page_is_open_and_has_every_operation(stranger: TestClient) -> None:
    page = stranger.get("/api/docs")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "<script" not in page.text and "http://" not in page.text and "https://" not in page.text
    described = stranger.app.openapi()
    for path, item in described["paths"].items():
        for method, operation in item.items():
            assert f"{method.upper()} {path}" in page.text
            assert f"operation/{operation['operationId']}" in page.text


@pytest.mark.parametrize(
    ("path", "sent", "status"),
    [
        ("/api/v1/token", {"json": {"grantType": "client_credentials", "clientSecret": "x"}}, 401),
        ("/api/v1/token", {"json": {"grantType": "client_credentials", "clientSecret": TOKEN[:-1]}}, 401),
        ("/api/v1/token", {"json": {"grantType": "magic"}}, 400),
        ("/api/v1/token", {"json": {"grantType": "refresh_token", "refreshToken": "x"}}, 401),
        ("/api/v1/token", {"json": {"grantType": "password", "username": "a\nb", "password": TOKEN}}, 400),
        ("/api/v2/token", {"data": {"grant_type": "app_token", "client_secret": TOKEN}}, 400),
        ("/api/v2/token", {"content": b"\xff\xfe"}, 400),
    ],
)
def test_refused_grants(stranger: TestClient, path: str, sent: dict, status: int) -> None:
    answer = stranger.post(path, **sent)
    assert answer.status_code == status, answer.text


def test_tokens_expire_and_cannot_be_forged() -> None:
    authority = Authority(lambda: TOKEN, SECRET)
    key = authority.signer._key(SECRET)[1]
    now = int(time.time())
    claims = {
        "iss": "pliant",
        "aud": ACCESS,
        "sub": "vouched:anna",
        "iat": now,
        "exp": now + 60,
        "of": named(TOKEN),
    }
    assert authority.who(f"Bearer {jwt.encode({'alg': 'HS256'}, claims, key)}").user == "anna"
    with pytest.raises(Unauthorized, match="expired"):
        authority.who(f"Bearer {jwt.encode({'alg': 'HS256'}, claims | {'exp': now - 600}, key)}")
    for wrong in (
        claims | {"iss": "other"},
        claims | {"aud": "other"},
        {k: v for k, v in claims.items() if k != "exp"},
        {k: v for k, v in claims.items() if k != "of"},
        claims | {"of": named("the token before")},
    ):
        with pytest.raises(Unauthorized):
            authority.who(f"Bearer {jwt.encode({'alg': 'HS256'}, wrong, key)}")
    for other in (OctKey.import_key(SECRET), Authority(lambda: TOKEN, b"x" * 32).signer._key(b"x" * 32)[1]):
        with pytest.raises(Unauthorized):
            authority.who(f"Bearer {jwt.encode({'alg': 'HS256'}, claims, other)}")


def test_an_issued_token_lives_as_long_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(lambda: TOKEN, SECRET)
    start = int(time.time())
    issued = authority.issue("anna")
    assert issued.life == LIFE == 3600

    def after(seconds: int) -> None:
        monkeypatch.setattr("pliant.api.identity.tokens.time.time", lambda: start + seconds)

    after(LIFE - 60)
    assert authority.who(f"Bearer {issued.access}").user == "anna"
    after(LIFE + 60)
    with pytest.raises(Unauthorized, match="expired"):
        authority.who(f"Bearer {issued.access}")
    after(REFRESH_LIFE - 60)
    assert authority.refresh(issued.refresh).access
    after(REFRESH_LIFE + 60)
    with pytest.raises(Unauthorized, match="expired"):
        authority.refresh(issued.refresh)


def test_what_is_issued_is_good_for_nobody_else() -> None:
    issued = Authority(lambda: TOKEN, SECRET).issue("anna")
    with pytest.raises(Unauthorized):
        Authority(lambda: TOKEN, b"y" * 32).who(f"Bearer {issued.access}")


def test_another_token_of_the_folder_ends_the_old_one_at_once(api: Api, tmp_path: Path) -> None:
    """On both servers of a folder: tokens issued for the old one end; access keys and tokens of jobs stay."""
    folder = StateFolder(tmp_path / "folder")
    folder.prepare()
    app, beside = (api.stage.app(token=folder.word("token")) for _ in range(2))
    asked = [TestClient(one, raise_server_exceptions=False) for one in (app, beside)]
    old = (folder.path / "token").read_text().strip()
    body = {"grantType": "client_credentials", "clientID": "anna", "clientSecret": old}
    issued = asked[0].post("/api/v1/token", json=body).json()
    key = asked[0].post("/api/v1/access-keys", json={"name": "kept"}, headers=bearer(old)).json()["token"]
    mine = api.submit("mine")["workloadId"]
    task = attempt_token(f"{mine}/task-0/1", SECRET)
    api.running(mine)

    def statuses(*tokens: str) -> list[int]:
        return [one.get("/api/v1/whoami", headers=bearer(it)).status_code for it in tokens for one in asked]

    assert statuses(old, issued["accessToken"], key) == [200] * 6
    assert asked[1].post("/api/v1/server/token", headers=bearer(issued["accessToken"])).status_code == 204
    assert statuses(old, issued["accessToken"], "", key) == [401] * 6 + [200] * 2
    again = {"grantType": "refresh_token", "refreshToken": issued["refreshToken"]}
    for one in asked:
        assert one.post("/api/v1/token", json=again).status_code == 401
        assert one.post("/api/v1/token", json=body).status_code == 401
        path = f"/api/v1/attempts/{mine}/task-0/1/allocation"
        assert one.get(path, headers=bearer(task)).status_code == 200, "jobs do not notice"
    new = (folder.path / "token").read_text().strip()
    assert new != old and statuses(new) == [200] * 2
    assert (folder.path / "token").stat().st_mode & 0o777 == 0o600
    (folder.path / "token").unlink()
    assert statuses(new, "") == [401] * 4, "without a file nothing opens it"
    assert api.call("POST", "/api/v1/server/token", 409)["reason"] == "conflict"


def test_an_attempt_reads_its_own_allocation_acknowledges_reports_and_nothing_else(api: Api) -> None:
    stranger = TestClient(api.stage.app(), raise_server_exceptions=False)
    mine, other = api.submit("mine")["workloadId"], api.submit("other")["workloadId"]
    own = bearer(attempt_token(f"{mine}/task-0/1", SECRET))
    api.running(mine)
    base = f"/api/v1/attempts/{mine}/task-0/1"
    told = stranger.get(f"{base}/allocation", headers=own).json()
    assert [(task["id"], task["state"]) for task in told["tasks"]] == [("task-0", "active")]
    linked = stranger.post(f"{base}/link", json={"protocol": 1, "pid": 5}, headers=own)
    assert linked.status_code == 200, linked.text
    ack = {"version": told["version"], "kind": "drained", "gpus": []}
    assert stranger.post(f"{base}/acks", json=ack, headers=own).status_code == 204
    assert stranger.post(f"{base}/progress", json={"step": 3}, headers=own).json()["nextMs"] >= 1000
    assert api.item(mine)["progress"]["step"] == 3
    for method, path in (
        ("GET", f"/api/v1/attempts/{other}/task-0/1/allocation"),
        ("GET", f"/api/v1/attempts/{mine}/task-0/2/allocation"),
        ("GET", f"/api/v1/attempts/{mine}/task-1/1/allocation"),
        ("POST", f"/api/v1/attempts/{other}/task-0/1/link"),
        ("POST", f"/api/v1/attempts/{other}/task-0/1/acks"),
        ("POST", f"/api/v1/attempts/{other}/task-0/1/progress"),
        ("POST", f"/api/v1/attempts/{mine}/task-0/2/progress"),
        ("POST", f"{base}/allocation"),
        ("DELETE", f"{base}/allocation"),
        ("GET", f"{base}/progress"),
        ("GET", f"{base}/../../../workloads"),
        ("GET", f"/api/v1/workloads/{mine}"),
        ("GET", f"/api/v1/workloads/{other}"),
        ("GET", "/api/v1/workloads"),
        ("POST", "/api/v1/workloads/trainings"),
        ("POST", f"/api/v1/workloads/{mine}/exec"),
        ("GET", f"/api/v1/workloads/{mine}/logs"),
        ("GET", "/api/v1/watch"),
        ("GET", "/api/v1/server"),
        ("POST", "/api/v1/server/shutdown"),
        ("GET", f"/api/v1/workloads/{mine}/events"),
        ("DELETE", f"/api/v1/workloads/{mine}"),
        ("POST", f"/api/v1/workloads/trainings/{mine}/suspend"),
        ("GET", "/metrics"),
    ):
        answer = stranger.request(method, path, headers=own)
        assert answer.status_code == 403, (method, path)
        assert answer.json()["reason"] == "forbidden"
    forged = attempt_token(f"{other}/task-0/1", SECRET).replace(other, mine)
    assert stranger.get(f"{base}/allocation", headers=bearer(forged)).status_code == 401
