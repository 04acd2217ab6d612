"""Notifications: who may set them up for themselves and others, what is refused; no secret is recorded."""

import pytest

from pliant.model.rights import PRACTITIONER, SYSTEM, TENANT, VIEWER, Place
from tests.api.conftest import Api
from tests.api.people import program

PATH, SERVER = "/api/v1/notifications", "/api/v1/mail-server"
MAIL = {"kind": "mail", "address": "me@example.org"}


def test_ones_own_addresses_are_added_listed_and_removed(api: Api) -> None:
    researcher = program(api, "r", (PRACTITIONER.id, Place()))
    other = program(api, "o", (VIEWER.id, Place()))
    made = api.call("POST", PATH, 201, json=MAIL, headers=researcher)
    assert (made["user"], made["on"], made["pending"]) == ("r", ["end", "failure"], 0)
    found = api.call("GET", PATH, headers=researcher)
    assert found == {"notifications": [made], "mailServer": None, "mail": False}
    assert api.call("GET", PATH, headers=other)["notifications"] == []
    api.call("DELETE", f"{PATH}/{made['id']}", 404, headers=other)
    assert api.get(PATH)["notifications"] == [made], "whoever administers sees all"
    api.call("POST", PATH, 409, json=MAIL, headers=researcher)
    api.call("POST", f"{PATH}/test", 409, headers=other)
    assert api.call("POST", f"{PATH}/test", 202, headers=researcher) == {"sent": 1}
    assert api.call("GET", PATH, headers=researcher)["notifications"][0]["pending"] == 1
    api.call("DELETE", f"{PATH}/{made['id']}", 204, headers=researcher)
    assert api.get(PATH)["notifications"] == []


def test_addresses_of_the_web_and_all_users_jobs_are_for_administrators(api: Api) -> None:
    researcher = program(api, "r", (PRACTITIONER.id, Place()))
    hook = {"kind": "webhook", "address": "/etc/pliant/hook"}
    for body in (hook, {**MAIL, "everybody": True}):
        api.call("POST", PATH, 403, json=body, headers=researcher)
    system = program(api, "s", (SYSTEM.id, TENANT))
    assert api.call("POST", PATH, 201, json={**hook, "everybody": True}, headers=system)["user"] is None


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "mail", "address": "me"},
        {"kind": "mail", "address": "a@b, c@d"},
        {"kind": "mail", "address": "a@b\r\nBcc: c@d"},
        {"kind": "mail", "address": "A <a@b>"},
        {"kind": "webhook", "address": "https://chat.example.org/S3CR3T"},
        {"kind": "pigeon", "address": "a@b"},
        {**MAIL, "on": ["birth"]},
        {**MAIL, "on": []},
        {"kind": "mail"},
    ],
)
def test_what_is_no_address(quiet: Api, body: dict[str, object]) -> None:
    quiet.call("POST", PATH, 400, json=body)


def test_the_server_for_mail_is_set_told_and_recorded_without_a_secret(api: Api) -> None:
    body = {"host": "smtp.example.org", "sender": "p@example.org", "login": "p", "passwordFile": "/etc/x"}
    made = api.call("PUT", SERVER, json=body)
    assert made == {**body, "port": 587, "security": "starttls"}
    assert api.get(PATH)["mailServer"] == made
    researcher = program(api, "r", (PRACTITIONER.id, Place()))
    assert api.call("GET", PATH, headers=researcher) == {
        "notifications": [], "mailServer": None, "mail": True,
    }  # fmt: skip
    api.call("PUT", SERVER, 403, json=body, headers=researcher)
    api.call("PUT", SERVER, json={**body, "host": "mail.example.org"})
    last = [record for _, record in api.stage.service.audited(0, 2**60) if record.entity == "MailServer"][-1]
    assert [(it.field, it.before, it.after) for it in last.changes] == [
        ("MailServer.host", '"smtp.example.org"', '"mail.example.org"')
    ]
    api.call("DELETE", SERVER, 204)
    assert api.get(PATH)["mail"] is False
    assert api.stage.service.audited(0, 2**60)[0][1].entity == "MailServer"


@pytest.mark.parametrize(
    "more",
    [
        {"sender": "nobody"},
        {"login": "p"},
        {"passwordFile": "/etc/x"},
        {"login": "p", "passwordFile": "here"},
        {"login": "p", "passwordFile": "/etc/x", "security": "none"},
        {"port": 70_000},
        {"password": "S3CR3T"},
    ],
)
def test_what_is_no_server_for_mail(quiet: Api, more: dict[str, object]) -> None:
    quiet.call("PUT", SERVER, 400, json={"host": "h", "sender": "p@example.org", **more})


EMAIL, SUBSCRIPTIONS = "/api/v1/email", "/api/v1/subscriptions"
CONFIG = {"smtpHost": "smtp.example.org", "from": "p@example.org"}


def test_the_paths_of_the_vendor_are_the_same_rows(api: Api) -> None:
    api.get(EMAIL, 404)
    assert api.get(f"{EMAIL}/state") == {"state": "disabled"}
    told = api.call("POST", EMAIL, json={"config": {**CONFIG, "subject": "Hello", "recipients": ["a@b.c"]}})
    assert told["notices"] == ["These fields have no effect here: config.recipients, config.subject."]
    assert api.get(PATH)["mailServer"]["host"] == "smtp.example.org"
    login = {**CONFIG, "username": "p", "passwordFile": "/etc/x", "smtpPort": 465}
    api.call("PUT", EMAIL, json={"config": login})
    assert api.get(PATH)["mailServer"] | {"sender": ""} == {
        "host": "smtp.example.org", "port": 465, "sender": "", "security": "tls", "login": "p",
        "passwordFile": "/etc/x",
    }  # fmt: skip
    assert api.get(EMAIL)["config"]["authType"] == "auth_login"
    researcher = program(api, "r", (PRACTITIONER.id, Place()))
    api.call("GET", EMAIL, 403, headers=researcher)
    body = {"events": [{"category": "workloads", "types": ["start"]}], "channels": ["me@example.org"]}
    made = api.call("POST", SUBSCRIPTIONS, 201, json=body, headers=researcher)
    assert api.call("GET", PATH, headers=researcher)["notifications"][0]["on"] == ["start"]
    assert api.call("GET", SUBSCRIPTIONS, headers=researcher) == {"subscriptions": [made]}
    assert api.get(SUBSCRIPTIONS) == {"subscriptions": []}
    api.call("DELETE", f"{SUBSCRIPTIONS}/{made['id']}", 404)
    told = api.call("POST", SUBSCRIPTIONS, 400, json={**body, "channels": ["email"]}, headers=researcher)
    assert told["fields"][0]["field"] == "channels"
    api.call("DELETE", f"{SUBSCRIPTIONS}/{made['id']}", 204, headers=researcher)
    api.call("DELETE", EMAIL, 204)
    api.get(EMAIL, 404)


@pytest.mark.parametrize(
    "config",
    [
        {**CONFIG, "password": "in a request"},
        {**CONFIG, "username": "p"},
        {**CONFIG, "username": "p", "authType": "auth_none"},
        {**CONFIG, "username": "p", "passwordFile": "/etc/x", "smtpTlsEnabled": False},
        {**CONFIG, "from": "nobody"},
        {"smtpHost": "a"},
    ],
)
def test_what_is_no_mail_server(quiet: Api, config: dict[str, object]) -> None:
    quiet.call("PUT", EMAIL, 400, json={"config": config})
    quiet.get(EMAIL, 404)
