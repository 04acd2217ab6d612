"""People, programs and keys over HTTP: secrets shown once, what each may do, what ends at once."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from joserfc import jwt

from pliant.api.identity.auth import token_of
from pliant.api.identity.passwords import (
    _NOBODYS,
    FREE,
    Slow,
    Tries,
    _hasher,
    client_and_secret,
    digest,
    fits,
    hashed,
)
from pliant.api.identity.tokens import ACCESS, REFRESH
from pliant.model.identity import AccessKey, Provider, subject_of
from pliant.model.rights import TENANT, Place
from pliant.wire.access import (
    ApplicationItem,
    ApplicationList,
    Idp,
    KeyItem,
    KeyList,
    RoleItem,
    RuleItem,
    RuleList,
    UserItem,
    UserMade,
)
from pliant.wire.audit import AuditLog
from tests.api.conform import conform
from tests.api.conftest import Api
from tests.api.people import program
from tests.api.stage import SECRET, Stage
from tests.api.stage import TOKEN as OWNER

RULES = "/api/v1/authorization/access-rules"
TOKEN = "/api/v1/token"
WORD = "correct horse battery"


@pytest.fixture
def stranger(api: Api) -> TestClient:
    return TestClient(api.http.app, raise_server_exceptions=False)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def person(api: Api, stranger: TestClient, name: str) -> str:
    """The id of a new user with the password WORD."""
    made = api.call("POST", "/api/v1/users", 201, json={"email": name})
    conform(UserMade, made)
    first = log_in(stranger, name, made["tempPassword"])
    change = {"currentPassword": made["tempPassword"], "newPassword": WORD}
    done = stranger.post("/api/v1/me/password", json=change, headers=bearer(first["accessToken"]))
    assert done.status_code == 204, done.text
    return str(made["id"])


def log_in(stranger: TestClient, name: str, password: str = WORD, status: int = 200) -> Any:
    answer = stranger.post(TOKEN, json={"grantType": "password", "username": name, "password": password})
    assert answer.status_code == status, answer.text
    return answer.json()


def give(api: Api, kind: str, subject: str, role: str, status: int = 201, **scope: str) -> Any:
    body = {"subjectType": kind, "subjectId": subject, "roleName": role, "scopeType": "tenant", **scope}
    return api.call("POST", RULES, status, json=body)


def who(stranger: TestClient, token: str, status: int = 200) -> Any:
    answer = stranger.get("/api/v1/whoami", headers=bearer(token))
    assert answer.status_code == status, answer.text
    return answer.json()


# -- people -----------------------------------------------------------------------------------------


def test_a_user_logs_in_refreshes_and_logs_out(api: Api, stranger: TestClient) -> None:
    person(api, stranger, "anna@example.org")
    conform(UserItem, api.get("/api/v1/users/anna@example.org"))
    issued = log_in(stranger, "anna@example.org")
    assert who(stranger, issued["accessToken"])["id"] == "anna@example.org"
    refresh = {"grantType": "refresh_token", "refreshToken": issued["refreshToken"]}
    fresh = stranger.post(TOKEN, json=refresh).json()
    who(stranger, fresh["accessToken"])
    assert stranger.post(TOKEN, json=refresh).status_code == 401, "a refresh token is good for one use"
    who(stranger, fresh["accessToken"], 401)
    again = {"grantType": "refresh_token", "refreshToken": fresh["refreshToken"]}
    assert stranger.post(TOKEN, json=again).status_code == 401, "the session that was copied is over"
    third = log_in(stranger, "anna@example.org")["accessToken"]
    assert stranger.post("/api/v1/me/logout", headers=bearer(third)).status_code == 204
    who(stranger, third, 401)


def test_the_security_settings_hold_for_logins_and_passwords(api: Api, stranger: TestClient) -> None:
    path = "/api/v1/security/settings"
    person(api, stranger, "anna@example.org")
    hour = 3_600_000

    def left() -> float:
        """Hours until the newest login ends."""
        rows = api.stage.service.board.access.sessions.values()
        return (max(rows, key=lambda row: row.created).expires - api.stage.clock.now()) / hour

    before = log_in(stranger, "anna@example.org")
    assert round(left()) == 30 * 24
    for key, value in (("session-length", "48h"), ("session-idle", "8h"), ("password-least", "12")):
        assert api.call("PUT", f"{path}/{key}", json={"value": value})["key"] == key
    issued = log_in(stranger, "anna@example.org")
    assert round(left()) == 8
    refresh = {"grantType": "refresh_token", "refreshToken": before["refreshToken"]}
    assert stranger.post(TOKEN, json=refresh).status_code == 200
    ends = {row.expires - api.stage.clock.now() for row in api.stage.service.board.access.sessions.values()}
    assert {round(end / hour) for end in ends} == {8}, "each refresh counts anew"
    change = {"currentPassword": WORD, "newPassword": "elevenchars"}
    told = stranger.post("/api/v1/me/password", json=change, headers=bearer(issued["accessToken"]))
    assert (told.status_code, told.json()["fields"][0]["field"]) == (400, "newPassword")
    assert "12 to 255 characters" in told.json()["message"]
    api.call("PUT", f"{path}/session-length", json={"value": None})
    for key, value in (("session-idle", "1h"), ("password-least", "7"), ("session-length", "1m")):
        api.call("PUT", f"{path}/{key}", 400, json={"value": value})
    api.call("PUT", f"{path}/victims", 404, json={"value": "youngest"})
    api.call("PUT", f"{path}/session-idle", 400, json={"value": "8h", "until": "noon"})
    assert [it["value"] for it in api.get(path)["settings"]] == ["720h0m0s", "8h0m0s", "200", "12"]


def test_the_login_provider_is_told_without_its_secret_and_changed_in_its_file(
    on_stage: Stage, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush")
    lab = Provider(
        "Lab", "https://login.example.org", "pliant", str(secret), "https://gpu.example.org", groups="teams"
    )
    owner = {"Authorization": f"Bearer {OWNER}"}
    with TestClient(on_stage.app(provider=lab), headers=owner) as http:
        (told,) = http.get("/api/v1/idps").json()
        conform(Idp, told)
        assert told == http.get("/api/v1/idps/oidc").json()
        assert told["redirectUri"] == "https://gpu.example.org/console/openid/back"
        assert (
            told["mappers"]
            == http.get("/api/v1/idps/oidc/mappers").json()
            == {
                "groups": "teams",
                "email": "email",
            }
        )
        assert "mandatoryClaim" not in told["oidcData"], "everybody whom the provider knows may log in"
        assert "hush" not in json.dumps(told) and str(secret) not in json.dumps(told)
        for method, path in (("POST", ""), ("PUT", "/oidc"), ("DELETE", "/oidc"), ("PUT", "/oidc/mappers")):
            refused = http.request(method, f"/api/v1/idps{path}", json={})
            assert (refused.status_code, "openid.yaml" in refused.json()["details"]) == (405, True), path
        assert "There is: oidc" in http.get("/api/v1/idps/saml").json()["details"]
    with TestClient(on_stage.app(), headers=owner) as http:
        assert http.get("/api/v1/idps").json() == []
        assert http.get("/api/v1/idps/oidc").status_code == 404


def test_a_login_that_is_over_is_refused_though_its_token_is_not(api: Api, stranger: TestClient) -> None:
    person(api, stranger, "anna@example.org")
    token = log_in(stranger, "anna@example.org")["accessToken"]
    who(stranger, token)
    row = next(iter(api.stage.service.board.access.sessions.values()))
    over = replace(row, expires=api.stage.clock.now() - 1)
    api.stage.loop.call(lambda draft: draft.put(over))
    who(stranger, token, 401)


def test_a_password_that_somebody_else_knows_is_good_for_setting_another(
    api: Api, stranger: TestClient
) -> None:
    made = api.call("POST", "/api/v1/users", 201, json={"email": "anna"})
    give(api, "user", "anna", "admin")
    token = log_in(stranger, "anna", made["tempPassword"])["accessToken"]
    refused = stranger.get("/api/v1/users", headers=bearer(token))
    assert refused.status_code == 403 and "Set your own" in refused.json()["details"]
    short = {"currentPassword": made["tempPassword"], "newPassword": "short"}
    told = stranger.post("/api/v1/me/password", json=short, headers=bearer(token))
    assert (told.status_code, told.json()["message"]) == (400, "newPassword must have at least 8 characters.")
    assert who(stranger, token)["mustChangePassword"] is True


def test_taking_away_acts_at_once(api: Api, stranger: TestClient) -> None:
    identity = person(api, stranger, "anna")
    rule = give(api, "user", "anna", "Viewer")
    conform(RuleItem, rule)
    token = log_in(stranger, "anna")["accessToken"]
    assert stranger.get("/api/v1/queue", headers=bearer(token)).status_code == 200
    api.call("DELETE", f"{RULES}/{rule['id']}", 204)
    assert stranger.get("/api/v1/queue", headers=bearer(token)).status_code == 403
    api.call("PATCH", f"/api/v1/users/{identity}", json={"enabled": False})
    who(stranger, token, 401)
    log_in(stranger, "anna", status=401)
    api.call("PATCH", f"/api/v1/users/{identity}", json={"enabled": True})
    token = log_in(stranger, "anna")["accessToken"]
    told = api.call("POST", f"/api/v1/users/{identity}/password")
    who(stranger, token, 401)
    log_in(stranger, "anna", told["password"])
    api.call("DELETE", f"/api/v1/users/{identity}", 204)
    log_in(stranger, "anna", told["password"], status=401)
    assert api.get(RULES)["accessRules"] == []


def test_the_last_administrator_stays(api: Api, stranger: TestClient) -> None:
    first, second = person(api, stranger, "first"), person(api, stranger, "second")
    one = give(api, "user", "first", "admin")["id"]
    two = give(api, "user", "second", "System administrator")["id"]
    api.call("DELETE", f"{RULES}/{two}", 204)
    for method, path, body in (
        ("DELETE", f"{RULES}/{one}", None),
        ("DELETE", f"/api/v1/users/{first}", None),
        ("PATCH", f"/api/v1/users/{first}", {"enabled": False}),
    ):
        assert "last system administrator" in api.call(method, path, 409, json=body)["message"]
    api.call("DELETE", f"/api/v1/users/{second}", 204)


def test_two_administrators_who_remove_each_other_at_once(api: Api, stranger: TestClient) -> None:
    rules = []
    for name in ("first", "second"):
        person(api, stranger, name)
        rules.append(give(api, "user", name, "admin")["id"])
    assert sorted(api.at_once(*(("DELETE", f"{RULES}/{rule}", None) for rule in rules))) == [204, 409]
    (left,) = api.get(RULES)["accessRules"]
    assert left["id"] in rules
    again = (
        "POST",
        RULES,
        {"subjectType": "user", "subjectId": "first", "roleName": "Editor", "scopeType": "tenant"},
    )
    assert sorted(api.at_once(again, again)) == [201, 409]


def test_nobody_reaches_for_more_than_they_have(api: Api, stranger: TestClient) -> None:
    department = api.call("POST", "/api/v1/org-unit/departments", 201, json={"name": "lab"})["id"]
    chief = program(api, "chief", (2, Place(department)))
    person(api, stranger, "root-like")
    give(api, "user", "root-like", "admin")
    api.call("POST", "/api/v1/users/root-like/password", 403, headers=chief)
    api.call("DELETE", "/api/v1/users/root-like", 403, headers=chief)
    person(api, stranger, "small")
    api.call("POST", "/api/v1/users/small/password", headers=chief)
    bound = {"email": "puppet", "account": "daemon"}
    api.call("POST", "/api/v1/users", 403, headers=chief, json=bound)
    rule = {"subjectType": "user", "subjectId": "small", "roleName": "Editor", "scopeType": "tenant"}
    api.call("POST", RULES, 403, headers=chief, json=rule)
    inside = {**rule, "scopeType": "department", "scopeId": department}
    api.call("POST", RULES, 201, headers=chief, json=inside)
    # A secret of what is bound to an account is as good as the account.
    api.call("PATCH", "/api/v1/users/small", json={"account": "daemon"})
    api.call("POST", "/api/v1/users/small/password", 403, headers=chief)
    api.call("POST", "/api/v1/users/small/password")
    api.call("POST", "/api/v1/service-accounts", 201, json={"name": "nightly"})
    api.call("POST", "/api/v1/service-accounts/nightly/secret", headers=chief)
    api.call("PATCH", "/api/v1/service-accounts/nightly", json={"account": "daemon"})
    api.call("POST", "/api/v1/service-accounts/nightly/secret", 403, headers=chief)
    seen = api.call("GET", RULES, headers=chief)
    conform(RuleList, seen)
    assert {it["scopeId"] for it in seen["accessRules"]} == {department}
    scopes = api.call("GET", "/api/v1/authorization/permitted-scopes?resourceType=users", headers=chief)
    assert scopes == {"scopes": [{"type": "department", "id": department, "own": False}]}
    conform(RoleItem, api.call("GET", "/api/v2/authorization/roles/2", headers=chief))


# -- programs and keys ------------------------------------------------------------------------------


def test_a_program_may_nothing_until_a_rule_names_it_and_its_secret_is_told_once(
    api: Api, stranger: TestClient
) -> None:
    made = api.call("POST", "/api/v1/service-accounts", 201, json={"name": "nightly"})
    conform(ApplicationItem, made)
    listed = api.get("/api/v1/service-accounts")
    conform(ApplicationList, listed)
    assert made["clientSecret"] not in str(listed)
    grant = {
        "grant_type": "client_credentials",
        "client_id": made["clientId"],
        "client_secret": made["clientSecret"],
    }
    token = stranger.post("/api/v2/token", data=grant).json()["access_token"]
    assert stranger.get("/api/v1/workloads", headers=bearer(token)).status_code == 403
    give(api, "app", "nightly", "researcher")
    assert stranger.get("/api/v1/workloads", headers=bearer(token)).status_code == 200
    renewed = api.call("POST", "/api/v1/service-accounts/nightly/secret")["clientSecret"]
    who(stranger, token, 401)
    assert stranger.post("/api/v2/token", data=grant).status_code == 401
    fresh = stranger.post("/api/v2/token", data={**grant, "client_secret": renewed}).json()["access_token"]
    who(stranger, fresh)
    api.call("PATCH", "/api/v1/service-accounts/nightly", json={"enabled": False})
    who(stranger, fresh, 401)
    assert stranger.post("/api/v2/token", data={**grant, "client_secret": renewed}).status_code == 401
    api.call("POST", "/api/v1/service-accounts", 409, json={"name": "nightly"})
    api.call("DELETE", "/api/v1/service-accounts/nightly", 204)


def test_a_key_has_its_owners_rights_or_less(api: Api, stranger: TestClient) -> None:
    identity = person(api, stranger, "anna")
    give(api, "user", "anna", "researcher")
    me = bearer(log_in(stranger, "anna")["accessToken"])
    whole = api.call("POST", "/api/v1/access-keys", 201, headers=me, json={"name": "laptop"})
    conform(KeyItem, whole)
    body = {"name": "board", "only": "read", "days": 1}
    reader = bearer(api.call("POST", "/api/v1/access-keys", 201, headers=me, json=body)["token"])
    own = bearer(whole["token"])
    assert who(stranger, whole["token"])["id"] == "anna"
    work = {"name": "a", "projectName": "default", "spec": {"image": "x"}}
    done = api.call("POST", "/api/v1/workloads/trainings", 202, headers=own, json=work)
    api.call("DELETE", f"/api/v1/workloads/{done['workloadId']}", 403, headers=reader)
    api.call("GET", "/api/v1/workloads", headers=reader)
    api.call("POST", "/api/v1/access-keys", 403, headers=reader, json={"name": "more"})
    keys = api.call("GET", "/api/v1/access-keys", headers=me)
    conform(KeyList, keys)
    assert [it["name"] for it in keys["accessKeys"]] == ["board", "laptop"]
    assert whole["clientSecret"] not in str(keys)
    assert whole["token"].encode() not in b"".join(path.read_bytes() for path in files(api))
    api.call("DELETE", "/api/v1/access-keys/laptop", 204, headers=me)
    who(stranger, whole["token"], 401)
    api.call("GET", "/api/v1/administration/access-keys", 403, headers=me)
    assert len(api.get("/api/v1/administration/access-keys")["accessKeys"]) == 1
    api.call("DELETE", f"/api/v1/users/{identity}", 204)
    api.call("GET", "/api/v1/workloads", 401, headers=reader)


def test_an_application_has_its_secret_and_no_access_keys(api: Api, stranger: TestClient) -> None:
    """Such a key was refused at each use."""
    bot = program(api, "nightly", (1, TENANT))
    told = api.call("POST", "/api/v1/access-keys", 403, headers=bot, json={"name": "ours"})
    assert told["message"].startswith("An application has no access keys: it logs in with its client id and")
    assert told["details"] == "For a new secret: pliant app secret nightly"
    assert not api.get("/api/v1/administration/access-keys")["accessKeys"]


def test_a_key_that_an_application_made_before_says_what_to_use(api: Api, stranger: TestClient) -> None:
    bot = program(api, "nightly", (1, TENANT))
    token = token_of(*(parts := client_and_secret()))
    owner = subject_of("service-account", "nightly")
    key = AccessKey("k-1", "ours", parts[0], digest(token), owner, "nightly")
    api.stage.loop.call(lambda draft: draft.put(key))
    assert "it logs in with its client id and secret" in who(stranger, token, 401)["message"]
    assert [it["name"] for it in api.call("GET", "/api/v1/access-keys", headers=bot)["accessKeys"]] == [
        "ours"
    ]
    api.call("POST", "/api/v1/access-keys/ours/secret", 403, headers=bot)
    api.call("DELETE", "/api/v1/access-keys/ours", 204, headers=bot)


def test_no_program_has_the_name_of_a_user(api: Api, stranger: TestClient) -> None:
    """Reports and notifications go by the name: else each would have those of the other."""
    person(api, stranger, "anna")
    taken = api.call("POST", "/api/v1/service-accounts", 409, json={"name": "anna"})
    assert taken["message"] == "A user named 'anna' already exists."
    api.call("POST", "/api/v1/service-accounts", 201, json={"name": "nightly"})
    taken = api.call("POST", "/api/v1/users", 409, json={"email": "nightly"})
    assert taken["message"] == "An application named 'nightly' already exists."


def test_the_token_of_a_key_ends_with_the_key(api: Api, stranger: TestClient) -> None:
    """It did not become one of the key's owner."""
    person(api, stranger, "anna")
    me = bearer(log_in(stranger, "anna")["accessToken"])
    key = api.call("POST", "/api/v1/access-keys", 201, headers=me, json={"name": "ours", "only": "read"})
    grant = {
        "grantType": "client_credentials",
        "clientID": key["clientId"],
        "clientSecret": key["clientSecret"],
    }
    token = stranger.post(TOKEN, json=grant).json()["accessToken"]
    who(stranger, token)
    api.call("DELETE", f"/api/v1/access-keys/{key['id']}", 204, headers=me)
    who(stranger, token, 401)


def files(api: Api) -> list[Any]:
    from pathlib import Path

    where = Path(str(api.stage.store._link.path))
    return [path for path in where.parent.glob(f"{where.name}*") if path.is_file()]


# -- tokens -----------------------------------------------------------------------------------------


def test_tokens_that_are_not(api: Api, stranger: TestClient) -> None:
    person(api, stranger, "anna")
    issued = log_in(stranger, "anna")
    good = issued["accessToken"]
    signer = api.http.app.state.context.authority.signer
    claims = signer.read(good, ACCESS)
    key, now = signer._key(SECRET)[1], int(time.time())
    who(stranger, jwt.encode({"alg": "HS256"}, claims, key))
    header, body, signature = good.split(".")
    none = jwt.encode({"alg": "HS256"}, claims, key).split(".")[1]
    for wrong in (
        good[:-1],
        good[: len(good) // 2],
        f"{header}.{body}.",
        f"eyJhbGciOiJub25lIn0.{none}.",  # {"alg":"none"}
        f"{header}.{body[:-2]}{'AA' if body[-2:] != 'AA' else 'BB'}.{signature}",
        issued["refreshToken"],
        jwt.encode({"alg": "HS256"}, claims | {"aud": "another"}, key),
        jwt.encode({"alg": "HS256"}, claims | {"aud": REFRESH}, key),
        jwt.encode({"alg": "HS256"}, claims | {"exp": now - 600}, key),
        jwt.encode({"alg": "HS256"}, claims | {"iss": "another"}, key),
        jwt.encode({"alg": "HS256"}, claims | {"gen": 99}, key),
        jwt.encode({"alg": "HS256"}, claims | {"sid": "another"}, key),
        jwt.encode({"alg": "HS256"}, claims | {"sub": "user:another"}, key),
        jwt.encode({"alg": "HS256"}, {k: v for k, v in claims.items() if k != "exp"}, key),
        jwt.encode({"alg": "HS384"}, claims, key, algorithms=["HS384"]),
    ):
        who(stranger, wrong, 401)


def test_guessing_is_slow_and_an_unknown_name_takes_as_long() -> None:
    now = [0.0]
    tries = Tries(lambda: now[0])
    for _ in range(FREE):
        tries.check("anna", "a")
        tries.wrong("anna", "a")
    with pytest.raises(Slow):
        tries.check("anna", "a")
    tries.check("anna", "b")
    waited = []
    for _ in range(4):
        before = now[0]
        while True:
            try:
                tries.check("anna", "a")
                break
            except Slow:
                now[0] += 0.5
        waited.append(now[0] - before)
        tries.wrong("anna", "a")
    assert waited == sorted(waited) and waited[-1] >= 2 * waited[0], waited
    tries.right("anna", "a")
    tries.check("anna", "a")


def test_a_password_is_compared_also_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    class Counting:
        def verify(self, kept: str, word: str) -> bool:
            compared.append(kept)
            return True

    assert not _hasher.check_needs_rehash(_NOBODYS), "it takes as long as one that is made today"
    kept = hashed(WORD)
    assert fits(WORD, kept) and not fits(f"{WORD}.", kept) and not fits(WORD, None)
    monkeypatch.setattr("pliant.api.identity.passwords._hasher", Counting())
    assert fits("x", kept) is True and fits("x", None) is False and fits("x", "") is False
    assert len(compared) == 3


def test_the_sixth_wrong_password_is_not_looked_at(api: Api, stranger: TestClient) -> None:
    person(api, stranger, "anna")
    api.http.app.state.context.authority.tries = Tries(lambda: 0.0)
    for _ in range(FREE):
        log_in(stranger, "anna", "wrong word", 401)
    log_in(stranger, "anna", WORD, 429)


def test_a_session_does_not_help_to_guess_the_password(api: Api, stranger: TestClient) -> None:
    person(api, stranger, "anna")
    me = bearer(log_in(stranger, "anna")["accessToken"])
    api.http.app.state.context.authority.tries = Tries(lambda: 0.0)

    def change(word: str) -> int:
        body = {"currentPassword": word, "newPassword": "another long word"}
        return stranger.post("/api/v1/me/password", json=body, headers=me).status_code

    assert [change("wrong word") for _ in range(FREE)] == [401] * FREE
    assert change(WORD) == 429
    log_in(stranger, "anna")


def test_who_is_deleted_while_logging_in_stays_deleted(
    api: Api, stranger: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = person(api, stranger, "anna")

    def slowly(password: str, kept: str | None) -> bool:
        api.stage.service.identities.delete_user(identity)
        return fits(password, kept)

    monkeypatch.setattr("pliant.api.identity.signin.fits", slowly)
    log_in(stranger, "anna", WORD, 401)
    assert "anna" not in [it["username"] for it in api.get("/api/v1/users")["users"]]


# -- the audit --------------------------------------------------------------------------------------


def test_the_audit_is_listed_and_exported_and_holds_no_secret(api: Api, stranger: TestClient) -> None:
    person(api, stranger, "anna")
    log_in(stranger, "anna", "wrong word", 401)
    give(api, "user", "anna", "Viewer")
    me = bearer(log_in(stranger, "anna")["accessToken"])
    api.call("GET", "/api/v1/audit/log", 403, headers=me)
    found = api.get("/api/v1/audit/log", limit=100)
    conform(AuditLog, found)
    told = [(it["subject"], it["action"], it["entity_type"], it["result"]) for it in found["audit_logs"]]
    assert ("anna", "sign-in", "User", "Succeeded") in told
    assert ("anna", "sign-in", "", "Failed") in told
    assert any(it[1:] == ("create", "AccessRule", "Succeeded") for it in told)
    assert "argon2" not in str(found) and WORD not in str(found)
    assert api.get("/api/v1/audit/log", user="anna", limit=1)["next"] == 1
    csv = api.http.get("/api/v1/audit/log/file", params={"format": "csv"}).text.splitlines()
    assert csv[0].startswith("id,timestamp,subject") and len(csv) == found["total"] + 1
    assert len(api.http.get("/api/v1/audit/log/file", params={"format": "json"}).json()) == found["total"]


def test_records_older_than_they_are_kept_go(api: Api) -> None:
    api.call("POST", "/api/v1/service-accounts", 201, json={"name": "bot"})
    at = max(record.at for _, record in api.stage.service.audited(0, 2**60))
    assert api.stage.store.prune_audit(at) == 0
    assert api.stage.store.prune_audit(at + 1) == 1


def test_lists_of_people_and_rules_are_paged_and_filtered(api: Api) -> None:
    for name in ("ada", "bea", "cleo"):
        api.call("POST", "/api/v1/users", 201, json={"email": name})
    first = api.get("/api/v1/users", limit=2, search="a", sortBy="username", sortOrder="desc")
    assert [it["username"] for it in first["users"]] == ["bea", "ada"]
    assert "next" not in first
    page = api.get("/api/v1/users", limit=1, filterBy="createdAt>=2026-01-01")
    assert (page["next"], len(page["users"])) == (1, 1)
    assert api.get("/api/v1/users/count", filterBy="username=^b") == {"count": 1}
    rules = "/api/v1/authorization/access-rules"
    for role, name in ((5, "ada"), (8, "bea")):
        body = {"subjectId": name, "subjectType": "user", "roleId": role, "scopeType": "tenant"}
        api.call("POST", rules, 201, json=body)
    found = api.get(rules, filterBy="roleId==8")["accessRules"]
    assert [it["subjectName"] for it in found] == ["bea"]
    assert api.get(f"{rules}/count", search="ada") == {"count": 1}
    assert api.get(rules, offset=100)["accessRules"] == []
    api.get("/api/v1/users", 400, filterBy="secret==1")


def test_the_audit_takes_moments_as_everybody_else(api: Api) -> None:
    api.call("POST", "/api/v1/users", 201, json={"email": "ada"})
    log = "/api/v1/audit/log"
    assert api.get(log, start="2026-01-01T00:00:00Z", end="2046-01-01T00:00:00+02:00")["total"] > 0
    assert api.get(log, start="2046-01-01T00:00:00Z")["total"] == 0
    assert api.get(log, start=0, end=1)["total"] == 0
    told = api.get(log, 400, start="yesterday")
    assert told["fields"][0]["field"] == "start"
    for huge in ("9" * 16, "9" * 19, "9" * 64):  # no database holds such a number
        assert api.get(log, 400, start=huge)["fields"][0]["field"] == "start"
        assert api.get(f"{log}/file", 400, end=huge)["fields"][0]["field"] == "end"
