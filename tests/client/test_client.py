"""What the client does beyond passing calls on: pages, lost connections, keys, streams, errors."""

import json
import socket
import threading

import pytest

from pliant.client import Client
from pliant.client.errors import (
    BadRequest,
    Conflict,
    NotFound,
    PliantError,
    Refused,
    Unauthorized,
    Unreachable,
    from_answer,
)
from pliant.client.transport import Transport
from tests.cli.fake import TOKEN, Answer, Chunks, problem
from tests.cli.items import workload


def test_pages_are_hidden(fake, client):
    fake.workloads = [workload(f"w{index}") for index in range(7)]
    fake.page = 3
    assert [item["name"] for item in client.workloads()] == [f"w{index}" for index in range(7)]
    assert [dict(request.query)["offset"] for request in fake.requests] == ["0", "3", "6"]


def test_calls_share_one_connection(fake, sync, monkeypatch):
    monkeypatch.setattr("pliant.client.transport.KEPT_FOR", 1000.0)
    ports = set()
    for _ in range(3):
        sync.whoami()
        ports.add(sync._http._kept.sock.getsockname()[1])
    assert len(ports) == 1


def test_a_submission_whose_connection_breaks_is_sent_again_with_its_key(fake, client):
    fake.break_next = 1
    body = {"name": "a1", "projectName": "team-a", "spec": {"image": "x"}}
    assert client.submit("Training", body)["workloadId"] == "id-a1"
    first, second = fake.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.body == second.body
    client.submit("Training", body)
    assert fake.last.headers["idempotency-key"] != first.headers["idempotency-key"]


def test_it_is_sent_again_only_once(fake, client):
    fake.break_next = 2
    with pytest.raises(Unreachable, match="was lost"):
        client.submit("Training", {"projectName": "team-a", "spec": {}})
    assert len(fake.requests) == 2


def test_what_must_not_happen_twice_is_not_sent_again(fake, client):
    fake.workloads = [workload("a1")]
    fake.break_next = 1
    with pytest.raises(Unreachable):
        client.exec("id-a1", ["ls"])
    assert len(fake.requests) == 1


def test_a_kept_connection_that_may_be_closing_is_not_used_again(fake, sync, monkeypatch):
    monkeypatch.setattr("pliant.client.transport.KEPT_FOR", -1.0)
    sync.whoami()
    before = sync._http._kept
    sync.whoami()
    assert sync._http._kept is not before


def test_of_two_with_one_name_the_living_is_found(fake, client):
    leaving = workload("a1", id="old", desiredPhase="Deleted")
    fake.workloads = [leaving, workload("a1", id="new")]
    assert client.find("a1", "team-a")["id"] == "new"
    fake.workloads = [leaving]
    assert client.find("a1", "team-a")["id"] == "old"
    with pytest.raises(NotFound, match="Job a2 does not exist in project team-a"):
        client.find("a2", "team-a")


def test_errors_carry_what_the_server_said(fake, client):
    for status, reason, kind in (
        (400, "bad-request", BadRequest),
        (401, "unauthorized", Unauthorized),
        (403, "forbidden", Unauthorized),
        (403, "over-quota", Refused),
        (404, "not-found", NotFound),
        (409, "name-exists", Conflict),
        (503, "unavailable", Unreachable),
        (500, "internal", PliantError),
    ):
        fake.answers["GET", "/api/v1/queue"] = problem(status, "What is wrong.", reason, "What to do.")
        with pytest.raises(PliantError) as caught:
            client.queue()
        error = caught.value
        assert type(error) is kind
        assert (error.message, error.details, error.status, error.reason) == (
            "What is wrong.",
            "What to do.",
            status,
            reason,
        )


def test_an_error_without_a_body_says_what_was_asked():
    assert from_answer(502, {}, "GET /x").message == "The server answered 502 to GET /x"


def test_logs_come_piece_by_piece(fake, client):
    gate = threading.Event()

    class Slow(Chunks):
        def __iter__(self):
            yield b"one\n"
            gate.wait(200)
            yield b"two\n"

    fake.chunks["/api/v1/workloads/id/logs"] = Slow([b"x"])
    pieces = iter(client.logs("id", follow=True))
    assert next(pieces) == b"one\n"
    gate.set()
    assert list(pieces) == [b"two\n"]


def test_a_stream_that_is_refused_raises_the_error(fake, client):
    fake.answers["GET", "/api/v1/workloads/id/logs"] = problem(404, "There is no workload id.", "not-found")
    with pytest.raises(NotFound, match="no workload"):
        client.logs("id")


def test_changes_are_taken_up_again_where_they_broke(fake, client):
    def event(name, mark):
        return f"id: {mark}\nevent: workload\ndata: {json.dumps({'id': name})}\n\n".encode()

    rounds = [
        Chunks([b": comment\n\n", event("a", "1") + event("b", "2")[:20], event("b", "2")[20:]]),
        Chunks([b"event: unknown\ndata: {}\n\n", event("c", "3")]),
        Chunks(),
    ]
    seen = []

    def stream(request, path):
        seen.append(request.headers.get("last-event-id"))
        return Answer(200, rounds[len(seen) - 1])

    fake._stream = stream
    changes = client.watch()
    assert [next(changes).item["id"] for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(Unreachable, match="ended the stream"):
        next(changes)
    assert seen == [None, "2", "3"]


def test_a_command_is_fed_and_read_on_two_connections(fake, client):
    fake.chunks["/api/v1/exec/s1/output"] = Chunks([b"\xff\x00raw"])
    command = client.exec("id-a1", ["cat"], tty=True, stdin=True, rows=50, columns=120, pod="p")
    command.send(b"\x00\xff")
    command.resize(51, 121)
    command.close_input()
    assert list(command.output()) == [b"\xff\x00raw"]
    assert command.exit_code() == 0
    command.close()
    sent = fake.sent("POST", "/api/v1/workloads/id-a1/exec")[0]
    assert sent == {"command": ["cat"], "tty": True, "stdin": True, "rows": 50, "columns": 120, "pod": "p"}
    inputs = [request for request in fake.requests if request.path == "/api/v1/exec/s1/input"]
    assert [(request.body, dict(request.query)) for request in inputs] == [
        (b"\x00\xff", {}),
        (b"", {"eof": "true"}),
    ]
    assert fake.sent("POST", "/api/v1/exec/s1/resize") == [{"rows": 51, "columns": 121}]


def test_names_in_paths_are_quoted(fake, client):
    with pytest.raises(NotFound):
        client.project("../../etc/passwd?x=#")
    assert fake.last.path == "/api/v1/org-unit/projects/..%2F..%2Fetc%2Fpasswd%3Fx%3D%23"
    assert fake.last.query == []


def test_a_prefix_of_the_address_is_kept(fake):
    transport = Transport(f"{fake.url}/pliant/", TOKEN)
    with pytest.raises(NotFound):
        transport.call("GET", "/api/v1/whoami")
    transport.close()
    assert fake.last.path == "/pliant/api/v1/whoami"


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "127.0.0.1", "http://x:port", "http://[", "http://ü..x"]
)
def test_what_is_no_address(url):
    with pytest.raises(BadRequest, match="is not a server address"):
        Client(url)


def test_a_server_that_accepts_and_says_nothing(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Client(url, timeout=0.2) as client, pytest.raises(Unreachable, match="does not answer"):
            client.version()
        assert Client(url, timeout=0.2).ready() is False


def test_no_server_is_an_error_of_its_own():
    with socket.socket() as silent:  # bound, so that no other program listens there
        silent.bind(("127.0.0.1", 0))
        with pytest.raises(Unreachable, match="No server answers"):
            Client(f"http://127.0.0.1:{silent.getsockname()[1]}").version()


def test_the_package_gives_the_client_and_stays_light():
    import subprocess
    import sys

    code = "import sys, pliant.client.errors; assert 'http.client' not in sys.modules; "
    code += "from pliant.client import Client"
    subprocess.run([sys.executable, "-c", code], check=True)
    import pliant.client

    with pytest.raises(AttributeError):
        pliant.client.Nothing  # noqa: B018 - asking is the test
