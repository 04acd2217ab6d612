"""Logins by a real provider, accepted and refused: the console's login page, programs, rights, the box."""

import hashlib
import re
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi.testclient import TestClient

from pliant.api.connections.peer import PEER
from pliant.api.identity.signin import LIVES, user_id
from pliant.console.mount import Console
from pliant.control.service import Service
from pliant.model.rights import PRACTITIONER, SYSTEM, VIEWER
from tests.api.stage import IMAGE, SECRET, TOKEN, Stage, stage
from tests.openid.rig import CLIENT_SECRET, Canaille, canaille

OWNER = {"Authorization": f"Bearer {TOKEN}"}


class Site:
    """A server with that provider; each browser has its own cookies."""

    def __init__(self, on: Stage, provider: Canaille, **more: object) -> None:
        said = {key: more.pop(key) for key in ("allowed", "roles", "address", "scopes", "uid") if key in more}
        told = replace(provider.told, **said)
        self.provider = provider
        self.app = on.app(
            provider=told,
            beside=lambda below: Console(
                below,
                self.app,
                secret=SECRET,
                peer=PEER,
                ended=on.service.logouts,
                news=self.app.state.context.pulse.listen,
            ),
            **more,
        )
        self.stage = on

    def browser(self, **headers: str) -> TestClient:
        return TestClient(
            self.app,
            base_url=self.provider.home,
            headers=headers,
            follow_redirects=False,
            raise_server_exceptions=False,
        )

    def owner(self) -> TestClient:
        return self.browser(**OWNER)

    def log_in(self, name: str, going: str = "", browser: TestClient | None = None) -> "Came":
        browser = browser or self.browser()
        begun = browser.get("/console/openid", params={"next": going})
        assert begun.status_code == 303, begun.text
        return Came(browser, browser.get(self.provider.log_in(begun.headers["location"], name)))

    def bearer(self, name: str) -> dict[str, str]:
        """Headers of a user who logged in by a program."""
        browser, program = self.browser(), self.browser()
        begun = begin(program)
        ticket = allowed(browser, browser.get(self.provider.log_in(begun["url"], name)))
        assert ticket.status_code == 200, ticket.text
        token = program.post("/api/v1/openid/token", json={"state": begun["state"], "secret": "held"})
        assert token.status_code == 200, token.text
        return {"Authorization": f"Bearer {token.json()['accessToken']}"}


class Came:
    """A browser that came back from the provider, and the page that it got."""

    def __init__(self, browser, answer):
        self.browser, self.answer = browser, answer

    @property
    def target(self):
        found = re.search(r'content="0;url=([^"]*)"', self.answer.text)
        assert found is not None, self.answer.text
        return found[1]


def begin(program):
    holder = hashlib.sha256(b"held").hexdigest()
    answer = program.post("/api/v1/openid/login", json={"holder": holder, "program": True})
    assert answer.status_code == 200, answer.text
    return answer.json()


def fields(answer):
    return {
        key: unescape(value)
        for key, value in re.findall(r'<input[^>]*name="([^"]+)"[^>]*value="([^"]*)"', answer.text)
    }


def allowed(browser, asked):
    """Presses the button that allows a program, as a user does who has compared the codes."""
    assert asked.status_code == 200, asked.text
    home = str(browser.base_url).rstrip("/")
    return browser.post("/console/openid/allow", data=fields(asked), headers={"Origin": home})


@pytest.fixture(scope="module")
def site(provider, tmp_path_factory) -> Iterator[Site]:
    with stage(tmp_path_factory.mktemp("stage")) as on:
        yield Site(on, provider)


@contextmanager
def a_site(folder, provider, **more):
    with stage(folder) as on:
        yield Site(on, provider, **more)


# -- the console ------------------------------------------------------------------------------------


def test_the_login_page_leads_to_the_provider_and_back_into_the_console(site):
    page = site.browser().get("/console/login?next=quotas")
    assert '<a href="/console/openid?next=quotas">Continue with Lab login</a>' in page.text
    came = site.log_in("anna", "quotas")
    assert came.answer.status_code == 200 and "logged in as anna" in came.answer.text
    assert came.target == "/console/quotas"
    cookies = came.answer.headers.get_list("set-cookie")
    assert any("HttpOnly" in it and "SameSite=strict" in it and "Path=/console;" in it for it in cookies)
    assert came.browser.get("/console/login").status_code == 200
    row = next(it for it in site.owner().get("/api/v1/users").json()["users"] if it["username"] == "anna")
    assert row["id"] == user_id(site.provider.issuer, "id-of-anna") and row["isLocal"] is False
    assert row["createdBy"] == f"openid {site.provider.issuer}" and row["account"] is None
    # The second login is the same user.
    site.log_in("anna")
    assert [it["username"] for it in site.owner().get("/api/v1/users").json()["users"]].count("anna") == 1


def test_out_of_the_console_and_of_the_provider(site):
    came = site.log_in("anna")
    session = next(iter(came.browser.cookies.jar)).value
    answer = came.browser.post("/console/logout", headers={"Origin": site.provider.home})
    assert answer.headers["location"] == "/console/login?out"
    page = came.browser.get("/console/login?out").text
    out = unescape(re.search(r'<a href="([^"]*)">Log out of Lab login too</a>', page)[1])
    assert out.startswith(f"{site.provider.issuer}/oauth/end_session?")
    assert parse_qs(urlsplit(out).query)["post_logout_redirect_uri"] == [
        f"{site.provider.home}/console/login"
    ]
    # A kept cookie is no longer valid.
    thief = site.browser()
    thief.cookies.set(f"pliant-{urlsplit(site.provider.home).port}", session, path="/console")
    assert thief.get("/console/quotas").headers["location"].startswith("/console/login")


@pytest.mark.parametrize(
    "going",
    [
        "https://evil.example.org",
        "//evil.example.org",
        "/\\evil.example.org",
        "quotas/../../evil",
        "a\r\nX: y",
        "javascript:x",
    ],
)
def test_the_return_address_leads_nowhere_else(site, going):
    assert site.log_in("anna", going).target == "/console/"
    assert "evil" not in site.browser().get("/console/openid", params={"next": going}).headers["set-cookie"]


def test_a_page_of_another_browser_does_not_end_the_login(site):
    """Neither with an unknown state, nor with one of another browser."""
    mine, other = site.browser(), site.browser()
    begun = mine.get("/console/openid")
    back = site.provider.log_in(begun.headers["location"], "anna")
    stranger = other.get(back)
    assert stranger.status_code == 401 and "another browser began it" in stranger.text
    wrong = mine.get(back.replace("state=", "state=x"))
    assert wrong.status_code == 401 and "completed before" in wrong.text
    assert not [*other.cookies.jar]
    # A reader of the address has state and code, but not the secret in the cookie.
    came = parse_qs(urlsplit(back).query)
    sent = {"state": came["state"][0], "code": came["code"][0], "issuer": site.provider.issuer}
    stolen = other.post("/api/v1/openid/token", json={**sent, "secret": "guessed"})
    assert stolen.status_code == 401 and "another browser began it" in stolen.text
    assert "logged in as anna" in mine.get(back).text


def test_an_answer_that_is_replayed_or_slipped_in(site):
    mine = site.browser()
    begun = mine.get("/console/openid")
    back = site.provider.log_in(begun.headers["location"], "anna")
    cookie = {it.name: it.value for it in mine.cookies.jar}
    assert mine.get(back).status_code == 200
    replayed = site.browser()
    for name, value in cookie.items():
        replayed.cookies.set(name, value, path="/console/openid")
    assert replayed.get(back).status_code == 401
    # Nor with a second code of the provider for the same address: we accept a state once.
    second = replayed.get(site.provider.log_in(begun.headers["location"], "anna"))
    assert second.status_code == 401 and "completed before" in second.text
    # The code of another login, say carol's, in my login: its verifier is not mine.
    hers = site.browser().get("/console/openid").headers["location"]
    code = site.provider.code(hers, "carol")
    victim = site.browser()
    state = parse_qs(urlsplit(victim.get("/console/openid").headers["location"]).query)["state"][0]
    sent = {"state": state, "code": code, "iss": site.provider.issuer}
    slipped = victim.get("/console/openid/back", params=sent)
    assert slipped.status_code == 401 and "invalid_grant" in slipped.text


def test_what_is_asked_of_the_provider(site):
    asked = parse_qs(urlsplit(site.browser().get("/console/openid").headers["location"]).query)
    assert asked["response_type"] == ["code"] and asked["code_challenge_method"] == ["S256"]
    assert asked["redirect_uri"] == [f"{site.provider.home}/console/openid/back"]
    other = parse_qs(urlsplit(site.browser().get("/console/openid").headers["location"]).query)
    for name in ("state", "nonce", "code_challenge"):
        assert len(asked[name][0]) >= 43 and asked[name] != other[name]


def test_the_name_under_which_browsers_come_is_answered(tmp_path, provider):
    """A proxy in front of the server has that name; no certificate of the server contains it."""
    with a_site(tmp_path, provider, address="https://gpu.example.org") as site:
        for name, status in (("gpu.example.org", 200), ("evil.example.org", 403)):
            assert site.browser(Host=name).get("/console/login").status_code == status


def test_a_refusal_of_the_provider_is_told_as_text(site):
    answer = site.browser().get("/console/openid/back?error=<b>access_denied</b>&state=x")
    assert answer.status_code == 403
    assert "refused the login: &lt;b&gt;access_denied&lt;/b&gt;." in answer.text


def test_a_login_that_takes_too_long(site, monkeypatch):
    logins = site.app.state.context.logins
    mine = site.browser()
    back = site.provider.log_in(mine.get("/console/openid").headers["location"], "anna")
    clock = logins._clock
    monkeypatch.setattr(logins, "_clock", lambda: clock() + LIVES + 1)
    assert mine.get(back).status_code == 401


def test_a_server_without_a_provider(on_stage_alone):
    with TestClient(on_stage_alone.app(), headers=OWNER) as http:
        assert http.get("/api/v1/openid").json() == {"providers": []}
        answer = http.post("/api/v1/openid/login", json={"holder": "0" * 64})
        assert answer.status_code == 404 and "no login provider" in answer.text


@pytest.fixture
def on_stage_alone(tmp_path):
    with stage(tmp_path) as made:
        yield made


def test_a_provider_that_is_away(tmp_path):
    with canaille(tmp_path) as provider, a_site(tmp_path, provider) as site:
        provider.stop()
        page = site.browser().get("/console/login")
        assert page.status_code == 200 and "Continue with Lab login" in page.text
        away = site.browser().get("/console/openid")
        assert away.status_code == 503
        assert (
            f"The login provider Lab login ({provider.issuer}) cannot be used: Connection refused"
            in away.text
        )
        form = {"name": "", "secret": TOKEN, "next": ""}
        local = site.browser().post("/console/login", data=form, headers={"Origin": provider.home})
        assert local.status_code == 303 and local.headers["location"] == "/console/"


# -- programs ---------------------------------------------------------------------------------------


def test_a_program_is_let_in_by_the_page_that_shows_its_code(site):
    program, browser = site.browser(), site.browser()
    begun = begin(program)
    mine = {"state": begun["state"], "secret": "held"}
    waiting = program.post("/api/v1/openid/token", json=mine)
    assert (waiting.status_code, waiting.json()["reason"]) == (409, "login-pending")
    asked = browser.get(site.provider.log_in(begun["url"], "boris"))
    assert re.fullmatch(r"[B-Z]{4}-[B-Z]{4}", begun["code"]) and begun["code"] in asked.text
    assert "<b>boris</b>" in asked.text
    # Nobody is logged in before the button is pressed; a page of another site cannot press it.
    assert program.post("/api/v1/openid/token", json=mine).status_code == 409
    evil = browser.post(
        "/console/openid/allow", data=fields(asked), headers={"Origin": "https://evil.example.org"}
    )
    assert evil.status_code == 403
    guessed = {**fields(asked), "ticket": "guessed"}
    assert (
        browser.post(
            "/console/openid/allow", data=guessed, headers={"Origin": site.provider.home}
        ).status_code
        == 401
    )
    assert program.post("/api/v1/openid/token", json=mine).status_code == 409
    assert allowed(browser, asked).status_code == 200
    assert program.post("/api/v1/openid/token", json={**mine, "secret": "other"}).status_code == 401
    told = program.post("/api/v1/openid/token", json=mine).json()
    who = program.get("/api/v1/whoami", headers={"Authorization": f"Bearer {told['accessToken']}"}).json()
    assert who["id"] == "boris" and who["roles"] == []
    assert program.post("/api/v1/openid/token", json=mine).status_code == 401  # once


def test_a_browser_that_comes_twice_for_a_program(site):
    program, browser = site.browser(), site.browser()
    begun = begin(program)
    back = site.provider.log_in(begun["url"], "boris")
    assert browser.get(back).status_code == 200
    assert browser.get(back).status_code == 401
    wrong = begin(program)
    made_up = {"state": wrong["state"], "code": "made-up", "iss": site.provider.issuer}
    answer = browser.get("/console/openid/back", params=made_up)
    assert answer.status_code == 401 and "invalid_grant" in answer.text
    heard = program.post("/api/v1/openid/token", json={"state": wrong["state"], "secret": "held"})
    assert heard.status_code == 401  # the program does not wait on


# -- identity and rights -------------------------------------------------------------------------------


def test_a_local_user_of_the_same_name_is_not_taken_over(tmp_path, provider):
    with a_site(tmp_path, provider) as site:
        owner = site.owner()
        made = owner.post("/api/v1/users", json={"email": "local"}).json()
        rule = {
            "subjectId": "local",
            "subjectType": "user",
            "roleId": SYSTEM.id,
            "scopeType": "tenant",
            "scopeId": "1",
        }
        assert owner.post("/api/v1/authorization/access-rules", json=rule).status_code < 300
        who = site.browser().get("/api/v1/whoami", headers=site.bearer("local")).json()
        assert who["id"] == "local@127.0.0.1" and who["roles"] == []
        assert who["subject"] != f"user:{made['id']}"
        root = owner.get("/api/v1/whoami").json()["id"]
        assert root not in [it["username"] for it in owner.get("/api/v1/users").json()["users"]]


def test_rights_come_from_groups_and_go_with_them(tmp_path, provider):
    roles = (
        ("team", PRACTITIONER.id, "default"),
        ("chiefs", VIEWER.id, ""),
        ("team", VIEWER.id, "not-there"),
    )
    with a_site(tmp_path, provider, roles=roles) as site:
        mine = site.browser()

        def held(name):
            return {
                (it["role"], it["scopeType"])
                for it in mine.get("/api/v1/whoami", headers=site.bearer(name)).json()["roles"]
            }

        assert held("boris") == set()
        assert held("anna") == {("AI practitioner", "project")}
        assert held("carol") == {("AI practitioner", "project"), ("Viewer", "tenant")}
        told = {it["username"]: it["groups"] for it in site.owner().get("/api/v1/users").json()["users"]}
        assert told == {"anna": ["team"], "boris": ["others"], "carol": ["chiefs", "team"]}
        assert held("carol") == {("AI practitioner", "project"), ("Viewer", "tenant")}
        body = {"name": "a", "projectName": "default", "spec": {"image": IMAGE}}
        sent = mine.post("/api/v1/workloads/trainings", json=body, headers=site.bearer("anna"))
        assert sent.status_code == 202, sent.text
        assert (
            mine.post("/api/v1/workloads/trainings", json=body, headers=site.bearer("boris")).status_code
            == 403
        )
        # Roles from an administrator stay; roles from the provider end when it no longer gives them.
        rule = {"subjectId": "carol", "subjectType": "user", "roleId": VIEWER.id, "scopeType": "project"}
        project = site.owner().get("/api/v1/org-unit/projects").json()["projects"][0]["id"]
        given = site.owner().post("/api/v1/authorization/access-rules", json={**rule, "scopeId": project})
        assert given.status_code < 300, given.text
        logins = site.app.state.context.logins
        logins.relying.provider = replace(logins.relying.provider, roles=())
        assert held("carol") == {("Viewer", "project")}


def test_groups_that_may_log_in(tmp_path, provider):
    with a_site(tmp_path, provider, allowed=("chiefs", "team")) as site:
        assert site.log_in("anna").answer.status_code == 200
        refused = site.log_in("boris").answer
        assert refused.status_code == 401 and "boris is in none of the groups" in refused.text
        assert "boris" not in [it["username"] for it in site.owner().get("/api/v1/users").json()["users"]]
        audit = site.owner().get("/api/v1/audit/log").text
        assert "boris" in audit and CLIENT_SECRET not in audit


def test_a_refused_login_is_recorded_before_its_answer(tmp_path, provider, monkeypatch):
    note, written = Service.note_audit, []

    def late(service, record):
        kept = Future()

        def write():
            kept.set_result(note(service, record).result())
            written.append(record.name)

        threading.Timer(0.5, write).start()
        return kept

    with a_site(tmp_path, provider, allowed=("chiefs",)) as site:
        monkeypatch.setattr(Service, "note_audit", late)
        assert site.log_in("boris").answer.status_code == 401
        assert written == ["boris"]
        form = {"grantType": "password", "username": "carol", "password": "guessed"}
        assert site.browser().post("/api/v1/token", json=form).status_code == 401
        assert written == ["boris", "carol"]


def test_a_user_that_was_disabled_or_has_no_password(tmp_path, provider):
    with a_site(tmp_path, provider) as site:
        token = site.bearer("anna")
        identity = user_id(provider.issuer, "id-of-anna")
        owner = site.owner()
        reset = owner.post(f"/api/v1/users/{identity}/password")
        assert reset.status_code == 409 and "has no password" in reset.text
        for password in ("", "anna"):
            form = {"grantType": "password", "username": "anna", "password": password}
            assert site.browser().post("/api/v1/token", json=form).status_code == 401
        assert owner.patch(f"/api/v1/users/{identity}", json={"enabled": False}).status_code == 200
        assert site.browser().get("/api/v1/whoami", headers=token).status_code == 401
        seen = owner.get(f"/api/v1/users/{identity}").json()["lastLogin"]
        refused = site.log_in("anna").answer
        assert refused.status_code == 401 and "The user anna is disabled." in refused.text
        assert owner.get(f"/api/v1/users/{identity}").json()["lastLogin"] == seen


def test_on_a_shared_machine_who_has_no_account_reads_and_submits_nothing(tmp_path, provider):
    roles = (("team", PRACTITIONER.id, "default"), ("chiefs", SYSTEM.id, ""))
    with a_site(tmp_path, provider, roles=roles, box=True) as site:
        mine, anna = site.browser(), site.bearer("anna")
        assert mine.get("/api/v1/workloads", headers=anna).status_code == 200
        body = {"name": "a", "projectName": "default", "spec": {"command": "true"}}
        sent = mine.post("/api/v1/workloads/trainings", json=body, headers=anna)
        assert (sent.status_code, sent.json()["reason"]) == (403, "no-account"), sent.text
        # A machine's account with the name of a user at the provider does not belong to that user.
        assert mine.get("/api/v1/whoami", headers=anna).json()["account"] is None
        chief = site.browser(**site.bearer("carol"))
        users = chief.get("/api/v1/users").json()["users"]
        who = next(it["id"] for it in users if it["username"] == "anna")
        # An administrator says which account does; it must exist.
        lost = chief.patch(f"/api/v1/users/{who}", json={"account": "nobody-of-this-name"})
        assert lost.status_code == 400, lost.text
        bound = chief.patch(f"/api/v1/users/{who}", json={"account": "daemon"})
        assert bound.status_code == 200, bound.text
        assert mine.get("/api/v1/whoami", headers=anna).json()["account"] == "daemon"
        assert mine.get("/api/v1/whoami", headers=site.bearer("anna")).json()["account"] == "daemon"


def test_claims_name_somebodys_mail_address_and_account(tmp_path, provider):
    roles = (("team", PRACTITIONER.id, "default"), ("chiefs", SYSTEM.id, ""))
    scopes = ("openid", "profile", "email", "groups")
    with a_site(tmp_path, provider, roles=roles, box=True, uid="locale", scopes=scopes) as site:
        anna, carol = site.browser(**site.bearer("anna")), site.browser(**site.bearer("carol"))
        people = {row["username"]: row for row in carol.get("/api/v1/users").json()["users"]}
        assert people["anna"]["email"] == "anna@example.org"
        wanted = {"events": [{"category": "workloads", "types": ["end"]}], "channels": ["email"]}
        assert anna.post("/api/v1/subscriptions", json=wanted).json()["channels"] == ["anna@example.org"]
        assert anna.get("/api/v1/whoami").json()["account"] == "daemon"
        body = {"name": "a", "projectName": "default", "spec": {"command": "true"}}
        sent = anna.post("/api/v1/workloads/trainings", json=body)
        assert sent.status_code in (201, 202), sent.text
        # For a user without a uid from the provider, an administrator names the account, and that stays.
        identity = people["carol"]["id"]
        assert carol.patch(f"/api/v1/users/{identity}", json={"account": "bin"}).status_code == 200
        assert site.browser(**site.bearer("carol")).get("/api/v1/whoami").json()["account"] == "bin"
        for name, number in (("boris", 0), ("local", 4294967290)):
            refused = site.log_in(name).answer
            assert refused.status_code == 401, refused.text
            assert f"names user {number} for {name}: no job may run as that here" in refused.text
        told = carol.get("/api/v1/idps/oidc/mappers").json()
        assert told == {"groups": "groups", "email": "email", "uid": "locale"}
        set_here = carol.put("/api/v1/idps/oidc/mappers", json={"gid": "gid"})
        assert set_here.status_code == 405 and "supplementaryGroups cannot be" in set_here.json()["details"]
