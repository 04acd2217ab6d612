"""Access to the console: what a browser is given, what another site's page cannot do. Without a browser."""

import asyncio
import errno
import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import Morsel, SimpleCookie
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from examples.walkthrough import Stage
from pliant.console.calls import Calls, Reader, Refusal
from pliant.console.session import Sessions
from tests.console.conftest import typed, url_of, written

pytestmark = pytest.mark.timeout(900)  # a browser on a busy machine

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
SOCKET = "/console/_nicegui_ws/socket.io/?EIO=4&transport=websocket"


@dataclass(frozen=True)
class Told:
    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def cookie(self) -> Morsel[str]:
        (found,) = SimpleCookie(self.headers["set-cookie"]).values()
        return found


def ask(
    stage: Stage,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    form: Mapping[str, str] | None = None,
    text: str | None = None,
) -> Told:
    connection = http.client.HTTPConnection(urlsplit(url_of(stage)).netloc, timeout=60)
    sent = {"Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
    connection.request(method, path, urlencode(form) if form is not None else text, sent)
    answer = connection.getresponse()
    body = b"" if answer.status == 101 else answer.read()
    told = Told(answer.status, {name.lower(): text for name, text in answer.getheaders()}, body.decode())
    connection.close()
    return told


def log_in(stage: Stage, secret: str = "", origin: str = "", name: str = "") -> Told:
    secret = secret or written(stage.state / "token").strip()
    form = {"name": name, "secret": secret}
    return ask(stage, "POST", "/console/login", {"Origin": origin or url_of(stage)}, form)


def cookie(told: Told) -> dict[str, str]:
    return {"Cookie": f"{told.cookie.key}={told.cookie.value}"}


@pytest.mark.parametrize(
    ("path", "target"),
    [("/", "/console/"), ("/projects", "/console/projects"), ("/console", "/console/")],
)
def test_short_paths_lead_to_the_console(stage: Stage, path: str, target: str) -> None:
    told = ask(stage, "GET", path)
    assert told.status == 307 and told.headers["location"] == target


def test_without_a_login_a_page_leads_to_the_door(stage: Stage) -> None:
    told = ask(stage, "GET", "/console/workloads")
    assert (told.status, told.headers["location"]) == (303, "/console/login?next=workloads")
    told = ask(stage, "GET", "/console/login")
    assert told.status == 200 and "<script" not in told.body
    policy = told.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "script" not in policy
    assert told.headers["x-content-type-options"] == "nosniff" and told.headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("projects", "projects"),
        ("//evil.example", ""),
        ("..//evil.example", ""),
        ("a%0d%0ab", ""),
        ("x:y", ""),
    ],
)
def test_after_the_login_comes_the_page_that_was_asked_for(stage: Stage, path: str, target: str) -> None:
    assert target != "" or "next" not in ask(stage, "GET", f"/console/{path}").headers.get("location", "")
    form = {"name": "", "secret": written(stage.state / "token").strip(), "next": path}
    told = ask(stage, "POST", "/console/login", {"Origin": url_of(stage)}, form)
    assert (told.status, told.headers["location"]) == (303, f"/console/{target}")


def test_the_cookie_is_for_this_server_and_no_script(stage: Stage) -> None:
    told = log_in(stage)
    assert (told.status, told.headers["location"]) == (303, "/console/")
    given = told.cookie
    assert given["httponly"] and given["samesite"] == "strict" and given["path"] == "/console"
    assert urlsplit(url_of(stage)).port == int(given.key.rpartition("-")[2])
    assert ask(stage, "GET", "/console/workloads", cookie(told)).status == 200
    changed = {"Cookie": f"{given.key}=x{given.value}"}
    assert ask(stage, "GET", "/console/workloads", changed).status == 303


def test_every_page_runs_only_its_own_scripts(stage: Stage) -> None:
    told = ask(stage, "GET", "/console/workloads", cookie(log_in(stage)))
    policy = dict(part.strip().split(" ", 1) for part in told.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'" and "'unsafe-inline'" not in policy["script-src"]
    assert {"http:", "https:", "*"}.isdisjoint(told.headers["content-security-policy"].split())
    again = ask(stage, "GET", "/console/workloads", cookie(log_in(stage)))
    assert again.headers["content-security-policy"] != told.headers["content-security-policy"]


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
def test_a_form_or_socket_of_another_site_is_refused(stage: Stage, origin: str) -> None:
    assert log_in(stage, origin=origin).status == 403
    told = log_in(stage)
    assert ask(stage, "POST", "/console/logout", {**cookie(told), "Origin": origin}).status == 403
    assert ask(stage, "GET", "/console/workloads", cookie(told)).status == 200, "it is still logged in"
    assert ask(stage, "GET", SOCKET, {**UPGRADE, **cookie(told), "Origin": origin}).status == 403


def test_a_socket_needs_the_cookie_and_the_origin_and_a_known_host(stage: Stage) -> None:
    own = {"Origin": url_of(stage)}
    told = log_in(stage)
    assert ask(stage, "GET", SOCKET, {**UPGRADE, **own}).status == 403
    assert ask(stage, "GET", SOCKET, {**UPGRADE, **cookie(told)}).status == 403
    foreign = {"Host": "evil.example", "Origin": "http://evil.example"}
    assert ask(stage, "GET", SOCKET, {**UPGRADE, **cookie(told), **foreign}).status == 403
    assert ask(stage, "GET", "/api/v1/workloads", {**UPGRADE, **cookie(told), **own}).status == 403
    assert ask(stage, "GET", SOCKET, {**UPGRADE, **cookie(told), **own}).status == 101


def test_the_cookie_opens_no_route_of_the_api(stage: Stage) -> None:
    assert ask(stage, "GET", "/api/v1/workloads", cookie(log_in(stage))).status == 401


def test_a_link_is_good_once_and_made_only_for_who_is_known(stage: Stage) -> None:
    assert ask(stage, "POST", "/console/link").status == 401
    assert ask(stage, "POST", "/console/link", cookie(log_in(stage))).status == 401
    path = typed(stage, "pliant console --print-url").strip().removeprefix(url_of(stage))
    told = ask(stage, "GET", path)
    assert told.status == 200 and ask(stage, "GET", "/console/workloads", cookie(told)).status == 200
    assert ask(stage, "GET", path).status == 403


def test_an_access_key_logs_in_and_what_is_taken_back_is_gone(stage: Stage) -> None:
    key = typed(stage, "pliant key create door -o json")
    token = key.partition('"token": "')[2].partition('"')[0]
    told = log_in(stage, token)
    assert told.status == 303 and ask(stage, "GET", "/console/workloads", cookie(told)).status == 200
    typed(stage, "pliant key revoke door")
    assert log_in(stage, token).status == 401


def test_a_password_that_somebody_gave_is_changed_at_the_door(stage: Stage) -> None:
    first = typed(stage, "pliant user create anna").split()[-1]
    typed(stage, "pliant access-rule create --user anna --role viewer")
    told = log_in(stage, first, name="anna")
    assert told.status == 200 and "set-cookie" not in told.headers
    assert "An administrator gave you this password" in told.body and first not in told.body
    way, home = "/console/password", {"Origin": url_of(stage)}
    form = {
        "name": "anna",
        "secret": first,
        "new": "correct horse",
        "again": "correct horse",
        "next": "projects",
    }
    for wrong, status, said in (
        ({"again": "correct hose"}, 400, "The two new passwords differ"),
        ({"new": "short", "again": "short"}, 400, "at least 8"),
        ({"secret": "x" * 16}, 401, "not valid"),
    ):
        refused = ask(stage, "POST", way, home, {**form, **wrong})
        assert (refused.status, said in refused.body) == (status, True), refused
        assert "set-cookie" not in refused.headers and 'name="again"' in refused.body
    assert ask(stage, "POST", way, {"Origin": "http://evil.example"}, form).status == 403
    done = ask(stage, "POST", way, home, form)
    assert (done.status, done.headers["location"]) == (303, "/console/projects")
    assert ask(stage, "GET", "/console/projects", cookie(done)).status == 200
    assert log_in(stage, first, name="anna").status == 401
    assert log_in(stage, "correct horse", name="anna").status == 303


def test_who_has_logged_out_is_out_also_of_the_next_server(stage: Stage) -> None:
    path = typed(stage, "pliant console --print-url").strip().removeprefix(url_of(stage))
    by_socket, by_token, other = ask(stage, "GET", path), log_in(stage), log_in(stage)

    def in_or_out() -> list[int]:
        told = (by_socket, by_token, other)
        return [ask(stage, "GET", "/console/workloads", cookie(each)).status for each in told]

    assert in_or_out() == [200, 200, 200]
    for told in (by_socket, by_token):
        assert ask(stage, "POST", "/console/logout", {**cookie(told), "Origin": url_of(stage)}).status == 303
    assert in_or_out() == [303, 303, 200]
    typed(stage, "pliant down --yes")
    typed(stage, "pliant up")
    assert in_or_out() == [303, 303, 200]


def test_a_logout_that_cannot_be_recorded_is_none() -> None:
    class Full:
        def __contains__(self, identity: str) -> bool:
            return False

        def add(self, identity: str, life: float) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    sessions = Sessions(broken, b"secret", "peer", Full())
    made = sessions.begin("anna", uid=1000)
    with pytest.raises(OSError, match="No space left"):
        asyncio.run(sessions.end(made))
    assert sessions.opened(sessions.sealed(made)) is made


def test_the_client_is_told_when_there_is_no_console(stage: Stage) -> None:
    done = stage.run(f"pliant --server unix:{stage.state}/sock console --print-url")
    assert done.code == 8 and "opens no port" in done.said


async def broken(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("a mistake of ours")


def test_a_mistake_of_the_server_has_the_code_500() -> None:
    with pytest.raises(Refusal) as told:
        asyncio.run(Calls(broken, Reader()).get("/api/v1/workloads"))
    assert (told.value.status, str(told.value)) == (500, "The server made a mistake.")
