"""Mail to a real SMTP server and POSTs to a real web server: what is sent once, and what is retried."""

import http.server
import json
import logging
import socket
import ssl
import subprocess
import threading
from email import message_from_bytes, policy

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from pliant.control.errors import Conflict, NotFound
from pliant.model.notice import EVENTS, MAIL, TEST, WEBHOOK, MailServer, Notice, Subscription
from pliant.notices import mail, webhook
from pliant.notices.sender import FIRST, GENTLE, GIVEN_UP, Sender
from tests.api.stage import until
from tests.control.conftest import stage
from tests.control.stage import Stage

__all__ = ["stage"]


class Inbox:
    """Handler of the SMTP server."""

    def __init__(self) -> None:
        self.messages = []
        self.refuse = ""

    async def handle_DATA(self, server, session, envelope):
        if self.refuse:
            return self.refuse
        self.messages.append((envelope, message_from_bytes(envelope.content, policy=policy.default)))
        return "250 OK"


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


@pytest.fixture
def inbox():
    handler = Inbox()
    controller = Controller(handler, hostname="127.0.0.1", port=free_port())
    controller.start()
    handler.server = MailServer(
        host="127.0.0.1", port=controller.port, sender="pliant@example.org", security="none"
    )
    yield handler
    controller.stop()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def told(stage):
    """A sender over a server's internals; it looks when a test calls it."""

    class Told:
        clock = Clock()

        def __init__(self) -> None:
            self.sender = Sender(stage.service.notices, stage.timeline.now, clock=self.clock)

        def look(self, later: float = GENTLE) -> None:
            self.clock.now += later
            self.sender.look()
            stage.run()

    return Told()


def subscribe(stage, address="me@example.org", user="me", kind=MAIL, on=EVENTS) -> Subscription:
    made = stage.service.notices.subscribe(Subscription("", user, kind, address, on, created_by=user))
    stage.run()
    return made


def set_server(stage, inbox) -> None:
    stage.service.notices.set_mail_server(inbox.server)
    stage.run()


def text_of(message) -> str:
    return message.get_content()


def test_start_and_end_of_a_job_are_one_mail_and_told_once(stage: Stage, inbox, told):
    set_server(stage, inbox)
    subscribe(stage)
    stage.submit("train", 1, virtual={"seconds": 60})
    stage.run(120_000)
    told.look()
    ((envelope, message),) = inbox.messages
    assert envelope.rcpt_tos == ["me@example.org"] and envelope.mail_from == "pliant@example.org"
    assert message["Subject"] == "[pliant] 2 events of your jobs"
    assert message["Auto-Submitted"] == "auto-generated"
    text = text_of(message)
    assert "train started (project default, user me)" in text and "train completed" in text
    assert "pliant describe job train -p default" in text
    told.look()
    assert len(inbox.messages) == 1 and stage.service.notices.pending() == []


def test_only_what_was_asked_for_and_of_whose_jobs(stage: Stage, inbox, told):
    set_server(stage, inbox)
    subscribe(stage, on=("failure",))
    subscribe(stage, "other@example.org", user="other")
    subscribe(stage, "all@example.org", user="", on=("end", "failure"))
    stage.submit("good", 1, virtual={"seconds": 5})
    stage.submit("bad", 1, virtual={"seconds": 5, "exit": 3}, backoff_limit=0)
    stage.run(60_000)
    told.look()
    seen = {envelope.rcpt_tos[0]: text_of(message) for envelope, message in inbox.messages}
    assert set(seen) == {"me@example.org", "all@example.org"}
    assert "bad failed" in seen["me@example.org"] and "good" not in seen["me@example.org"]
    assert "good completed" in seen["all@example.org"] and "bad failed" in seen["all@example.org"]


def test_who_cancels_the_own_job_is_not_told_and_its_owner_is_when_another_does(stage: Stage, inbox, told):
    set_server(stage, inbox)
    subscribe(stage, on=("failure",))
    mine, theirs = stage.submit("mine", 1), stage.submit("theirs", 1)
    stage.run(1000)
    stage.service.cancel(mine, "me")
    stage.service.cancel(theirs, "root")
    stage.run(60_000)
    told.look()
    ((_, message),) = inbox.messages
    assert message["Subject"] == "[pliant] theirs failed" and "Cancelled by root" in text_of(message)


def test_a_preemption_names_nobody_of_another_project(stage: Stage, inbox, told):
    set_server(stage, inbox)
    stage.project("a", 2)
    stage.project("b", 0)
    subscribe(stage, on=("preemption",))
    victim = stage.submit("victim", 2, project="b")
    stage.run(1000)
    assert stage.phase(victim) == "Running"
    stage.submit("secret-name", 2, project="a")
    stage.run(60_000)
    told.look()
    ((_, message),) = inbox.messages
    assert message["Subject"] == "[pliant] victim lost GPUs"
    assert "secret-name" not in text_of(message) and "Other work took GPUs from the job" in text_of(message)


def test_what_could_not_be_told_is_tried_again_also_by_the_next_server(stage: Stage, inbox, told, caplog):
    set_server(stage, inbox)
    subscribe(stage, on=("end",))
    stage.submit("train", 1, virtual={"seconds": 5})
    stage.run(60_000)
    inbox.refuse = "451 later"
    with caplog.at_level(logging.WARNING):
        told.look()
    assert "were not told" in caplog.text and "tried again in 10 s" in caplog.text
    told.look(FIRST - 1)
    assert len(stage.service.notices.pending()) == 1
    stage.reopen()
    inbox.refuse = ""
    after = Sender(stage.service.notices, stage.timeline.now)
    after.look()
    stage.run()
    assert len(inbox.messages) == 1 and stage.service.notices.pending() == []


def test_after_two_days_it_is_given_up_and_said(stage: Stage, told, caplog):
    subscribe(stage, on=("end",))
    stage.submit("train", 1, virtual={"seconds": 5})
    stage.run(60_000)
    with caplog.at_level(logging.WARNING):
        told.look()
        assert "no mail server is set" in caplog.text
        stage.run(GIVEN_UP + 60_000)
        told.look(3600)
    assert "were not told for 2 days: given up" in caplog.text
    assert stage.service.notices.pending() == []


def test_an_array_is_one_mail_with_a_line_for_each_up_to_a_bound(inbox):
    rows = [Notice(str(n), "s", "end", n, f"w{n}", f"sweep-{n}", "p", "me", "Done.") for n in range(120)]
    mail.deliver(inbox.server, "me@example.org", rows)
    text = text_of(inbox.messages[0][1])
    assert "sweep-49 completed" in text and "sweep-50" not in text and "70 more events" in text


def test_names_cannot_forge_a_header_and_any_script_arrives(inbox):
    row = Notice("1", "s", "end", 0, "w", "größe-火", "p", "me", "Done.\r\n.\r\nRCPT TO:<eve@example.org>")
    mail.deliver(inbox.server, "me@example.org", [row])
    envelope, message = inbox.messages[0]
    assert message["Subject"] == "[pliant] größe-火 completed" and envelope.rcpt_tos == ["me@example.org"]
    with pytest.raises(ValueError, match=r"(?i)linefeed|newline|header"):
        mail.written(
            "a@b", "me@example.org", [Notice("1", "s", "end", 0, "w", "x\nBcc: eve@e", "p", "m", "")]
        )


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for 127.0.0.1, which no client trusts."""
    folder = tmp_path_factory.mktemp("tls")
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-keyout", str(folder / "key"), "-out", str(folder / "cert"), "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "2"]
    subprocess.run(words, check=True, capture_output=True)
    return folder


def test_a_login_goes_only_over_tls_to_a_server_that_is_believed(tmp_path, certificate, monkeypatch, caplog):
    seen = []

    def authenticate(server, session, envelope, mechanism, data):
        seen.append((data.login, data.password))
        return AuthResult(success=data.password == b"S3CR3T", handled=False)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert", certificate / "key")
    handler = Inbox()
    controller = Controller(
        handler, hostname="127.0.0.1", port=free_port(), tls_context=context, authenticator=authenticate,
        auth_required=True,
    )  # fmt: skip
    controller.start()
    try:
        place = tmp_path / "password"
        place.write_text("S3CR3T\n")
        server = MailServer(
            host="localhost", port=controller.port, sender="a@example.org", login="pliant",
            password_file=str(place),
        )  # fmt: skip
        rows = [Notice("1", "s", TEST, 0, "", "", "", "me", "asked")]
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            mail.deliver(server, "me@example.org", rows)
        assert seen == [], "no password to whom nobody vouches for"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert"))
        mail.deliver(server, "me@example.org", rows)
        assert seen == [(b"pliant", b"S3CR3T")] and len(handler.messages) == 1
        place.write_text("wrong")
        with pytest.raises(OSError, match="refused it") as caught:
            mail.deliver(server, "me@example.org", rows)
        assert "wrong" not in str(caught.value)
        place.unlink()
        with pytest.raises(OSError, match="the file with the password"):
            mail.deliver(server, "me@example.org", rows)
    finally:
        controller.stop()


# -- webhooks ---------------------------------------------------------------------------------------


@pytest.fixture
def hook():
    class Handler(http.server.BaseHTTPRequestHandler):
        status, got = 204, []

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.got.append((self.path, json.loads(body)))
            self.send_response(self.status)
            self.end_headers()

        def log_message(self, *words):
            pass

    Handler.got = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    Handler.port = server.server_address[1]
    yield Handler
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_webhook_gets_the_events_and_its_address_is_in_no_log(stage: Stage, hook, told, tmp_path, caplog):
    place = tmp_path / "url"
    place.write_text(f"http://127.0.0.1:{hook.port}/hook/S3CR3T?x=1\n")
    subscribe(stage, str(place), user="", kind=WEBHOOK, on=("end",))
    stage.submit("train", 1, virtual={"seconds": 5})
    stage.run(60_000)
    hook.status = 500
    with caplog.at_level(logging.WARNING):
        told.look()
    assert f"the address in {place} answered 500" in caplog.text and "S3CR3T" not in caplog.text
    hook.status = 204
    told.look()
    path, body = hook.got[-1]
    assert path == "/hook/S3CR3T?x=1" and body["more"] == 0 and body["text"].startswith("train (default, me)")
    assert {**body["events"][0], "at": "", "workload": ""} == {
        "event": "end", "at": "", "workload": "", "name": "train", "project": "default", "user": "me",
        "message": body["events"][0]["message"],
    }  # fmt: skip
    assert stage.service.notices.pending() == []


@pytest.mark.parametrize("text", ["", "ftp://x/", "https://", "http://h:99999/", "file:///etc/passwd"])
def test_a_file_without_an_address_is_said(tmp_path, text):
    place = tmp_path / "url"
    place.write_text(text)
    with pytest.raises(OSError, match=str(place)):
        webhook.deliver(str(place), [Notice("1", "s", TEST, 0, "", "", "", "me", "")])


# -- who is told ------------------------------------------------------------------------------------


def test_addresses_are_bounded_and_removed_with_what_waits(stage: Stage, told):
    made = [subscribe(stage, f"{n}@example.org") for n in range(5)]
    with pytest.raises(Conflict, match="5 notifications exist already"):
        subscribe(stage, "more@example.org")
    stage.service.notices.unsubscribe(made[0].id)
    stage.run()
    with pytest.raises(Conflict, match="already has a notification"):
        subscribe(stage, "1@example.org")
    assert stage.service.notices.test([row.id for row in made[1:]], "me") == 4
    stage.run()
    for row in made[1:]:
        stage.service.notices.unsubscribe(row.id)
    stage.run()
    assert stage.service.notices.pending() == []
    with pytest.raises(NotFound):
        stage.service.notices.unsubscribe(made[1].id)


def test_the_thread_looks_by_itself(stage: Stage, inbox, monkeypatch):
    monkeypatch.setattr("pliant.notices.sender.LOOK", 0.01)
    rows = [Notice("1", "s", TEST, stage.timeline.now(), "", "", "", "me", "asked")]

    class Told:
        def pending(self):
            return list(rows)

        def subscriptions(self):
            return [Subscription("s", "me", MAIL, "me@example.org", EVENTS)]

        def mail_server(self):
            return inbox.server

        def told(self, notices):
            for row in notices:
                rows.remove(row)

    Sender(Told(), stage.timeline.now).start()
    until(lambda: inbox.messages and not rows)


def test_why_a_job_failed_is_for_its_owner(stage: Stage, inbox, told):
    """The reason may contain the command; a subscriber to all jobs may be a chat room."""
    set_server(stage, inbox)
    subscribe(stage, on=("failure",))
    subscribe(stage, "all@example.org", user="", on=("failure",))
    theirs = stage.submit("theirs", 1)
    stage.run(1000)
    stage.service.cancel(theirs, "root")
    stage.run(60_000)
    told.look()
    seen = {envelope.rcpt_tos[0]: text_of(message) for envelope, message in inbox.messages}
    assert "Cancelled by root" in seen["me@example.org"]
    assert "Cancelled by root" not in seen["all@example.org"] and "pliant describe" in seen["all@example.org"]
