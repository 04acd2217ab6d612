"""Logs, commands and changes over real connections, read by the real client."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from pliant.api import guard
from pliant.api.identity.principal import Principal
from pliant.api.streaming import sessions
from pliant.api.streaming.sessions import Sessions
from pliant.client import Client
from pliant.client.errors import BadRequest, Conflict, NotFound, PliantError, Unreachable
from pliant.client.session import Exec
from pliant.control import errors
from pliant.control.ports import Input, Session
from pliant.model.rights import SYSTEM, Grant, Place
from pliant.model.workload import AttemptId
from tests.api.conftest import Api
from tests.api.people import program
from tests.api.stage import TOKEN, Command, Stage, until


@contextmanager
def served(on: Stage) -> Iterator[Client]:
    """Serves over a socket; at the end all streams are closed."""
    app = on.app(closing=lambda: server.should_exit)
    config = uvicorn.Config(app, port=0, log_config=None, access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    client = Client(f"http://127.0.0.1:{port}", TOKEN)
    try:
        yield client
    finally:
        client.close()
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture
def client(on_stage: Stage) -> Iterator[Client]:
    with served(on_stage) as made:
        yield made


def feeds() -> int:
    return sum(thread.name.startswith("pliant-feed") for thread in threading.enumerate())


def talks(api: Api, output: str = "one\ntwo\nthree\n", seconds: str | None = None) -> str:
    """A running workload that has logged this text."""
    env = [{"name": "TEST_OUTPUT", "value": output}]
    if seconds is not None:
        env.append({"name": "PLIANT_VIRTUAL_SECONDS", "value": seconds})
    identity = api.submit("a", environmentVariables=env)["workloadId"]
    until(lambda: api.item(identity)["phase"] in ("Running", "Completed"))
    return identity


# -- logs -------------------------------------------------------------------------------------------


def test_logs(api: Api, client: Client) -> None:
    identity = talks(api)
    assert b"".join(client.logs(identity)) == b"one\ntwo\nthree\n"
    assert b"".join(client.logs(identity, tail=1)) == b"three\n"
    assert b"".join(client.logs(identity, pod="a-task-0")) == b"one\ntwo\nthree\n"
    assert b"".join(client.logs(identity, attempt=1)) == b"one\ntwo\nthree\n"
    with pytest.raises(NotFound, match="no pod 'b'"):
        client.logs(identity, pod="b")
    with pytest.raises(NotFound, match="task-0 has no attempt 7"):
        client.logs(identity, attempt=7)
    waits = api.submit("huge", gpus=9)["workloadId"]
    with pytest.raises(Conflict, match="has not been started"):
        client.logs(waits)
    text = b"".join(client.logs(identity, timestamps=True, tail=2)).decode()
    assert re.fullmatch(r"(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (two|three)\n){2}", text)


def test_followed_logs_end_with_the_attempt(api: Api, client: Client) -> None:
    identity = talks(api)
    lines = client.logs(identity, follow=True).lines()
    assert list(islice(lines, 3)) == ["one", "two", "three"]
    until(lambda: feeds() == 1)  # streams of earlier answers may still be ending
    api.call("POST", f"/api/v1/workloads/trainings/{identity}/suspend", 202)
    assert list(lines) == []
    until(lambda: feeds() == 0)


def test_a_reader_that_leaves_ends_the_work_behind_it(api: Api, client: Client) -> None:
    identity = talks(api)
    until(lambda: feeds() == 0)  # streams of earlier tests may still be ending
    stream = client.logs(identity, follow=True)
    assert next(iter(stream))
    until(lambda: feeds() == 1)
    stream.close()
    until(lambda: feeds() == 0)


def test_logs_of_what_never_ran(api: Api, client: Client) -> None:
    identity = api.submit("huge", gpus=9)["workloadId"]
    with pytest.raises(Conflict, match="has not been started"):
        client.logs(identity)


# -- commands ---------------------------------------------------------------------------------------


@contextmanager
def executed(client: Client, identity: str, *argv: str, **options: Any) -> Iterator[Exec]:
    with closing(client.exec(identity, argv, **options)) as run:
        yield run


def test_a_command_and_its_exit_code(api: Api, client: Client) -> None:
    identity = talks(api)
    with executed(client, identity, "echo", "hello", "world") as run:
        assert b"".join(run.output()) == b"hello world\n"
        assert run.exit_code() == 0
    with executed(client, identity, "false", pod="task-0") as run:
        assert b"".join(run.output()) == b""
        assert run.exit_code() == 1


def test_a_command_with_input_and_a_screen(api: Api, client: Client) -> None:
    identity = talks(api)
    with executed(client, identity, "cat", tty=True, stdin=True, rows=40, columns=120) as run:
        [command] = api.stage.engine.commands
        assert command.screen == (40, 120)
        output = run.output()
        assert run.exit_code() is None
        run.send(b"\x00\xff")
        assert next(output) == b"\x00\xff"
        run.resize(50, 100)
        assert command.screen == (50, 100)
        run.close_input()
        assert list(output) == []
        assert run.exit_code() == 0
        with pytest.raises(Conflict, match="no more input"):
            run.send(b"late")


def test_what_is_typed_goes_to_the_attempt_that_it_is_for(api: Api, client: Client) -> None:
    """If the attempt has ended meanwhile, nobody gets the input, not even the next attempt."""
    identity = talks(api)
    with closing(client.input(identity, "task-0", 1)) as first:
        assert (first.send(b"hello"), first.send(b"lo", end=True)) == (3, 3)
        typed = api.stage.engine.typed
        task, stream = AttemptId(identity, "task-0", 1), typed[0][2]
        assert typed == [(task, b"hel", stream, 0, False), (task, b"lo", stream, 3, True)]
        with pytest.raises(Conflict, match="The terminal was not resized: it has no terminal"):
            first.resize(24, 80)
        api.call("POST", f"/api/v1/workloads/trainings/{identity}/suspend", 202)
        until(lambda: api.item(identity)["phase"] == "Stopped")
        with pytest.raises(Conflict, match="does not run now"):
            first.send(b"late")
        api.call("POST", f"/api/v1/workloads/trainings/{identity}/resume", 202)
        until(lambda: api.item(identity)["phase"] == "Running")
        with pytest.raises(Conflict, match="Attempt 1 has ended"):
            first.send(b"late")
    with closing(client.input(identity, "", 2)) as second:
        assert second.send(b"new") == 3
    assert [entry[0].number for entry in typed] == [1, 1, 2]


def test_what_is_typed_into_a_job_that_takes_no_input(
    api: Api, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(attempt: AttemptId) -> Input:
        raise ValueError("it was submitted without --stdin")

    monkeypatch.setattr(api.stage.engine, "input", none)
    with (
        closing(client.input(talks(api), "", 1)) as target,
        pytest.raises(Conflict, match="a takes no input: it was submitted without --stdin") as refused,
    ):
        target.send(b"x")
    assert refused.value.reason == "no-input", "the client stops sending by that"


def test_a_command_is_killed(api: Api, client: Client) -> None:
    with executed(client, talks(api), "sleep", "1000") as run:
        run.kill()
        assert api.stage.engine.commands[0].killed
        with pytest.raises(NotFound):
            run.exit_code()


def test_output_is_for_one_reader(api: Api, client: Client) -> None:
    with executed(client, talks(api), "cat", stdin=True) as run:
        output = run.output()
        run.send(b"x")
        assert next(output) == b"x"
        with pytest.raises(Conflict, match="Another client reads"):
            next(run.output())
        output.close()
        until(lambda: feeds() == 0)
        run.send(b"y")
        run.close_input()
        assert b"".join(run.output()) == b"y"


def test_a_connection_to_a_port(api: Api, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    identity, asked = talks(api), []
    assert not client.tunnelled(identity)
    with pytest.raises(BadRequest, match="ports of the server's own machine"):
        client.open_port(identity, 80)

    class Echoes:
        def connect(self, attempt: AttemptId, port: int) -> Session:
            if port == 81:
                raise OSError("the cluster answered 403")
            asked.append((attempt, port))
            return Command(["cat"])

    monkeypatch.setattr(type(api.stage.engine), "tunnels", Echoes())
    assert client.tunnelled(identity, "task-0")
    with closing(client.open_port(identity, 80, pod="task-0")) as way:
        output = way.output()
        way.send(b"\x00\xff")
        assert next(output) == b"\x00\xff"
        way.close_input()
        assert list(output) == []
        assert way.exit_code() == 0
    assert asked == [(AttemptId(identity, "task-0", 1), 80)]
    with pytest.raises(Conflict, match="The connection could not be made: the cluster answered 403"):
        client.open_port(identity, 81)
    for port in (0, 65_536, "web"):
        api.call("POST", f"/api/v1/workloads/{identity}/exec/port", 400, json={"port": port})


def test_commands_need_a_running_task(api: Api, client: Client) -> None:
    identity = api.submit("huge", gpus=9)["workloadId"]
    with pytest.raises(Conflict, match="does not run now"):
        client.exec(identity, ["ls"])
    with pytest.raises(NotFound):
        client.exec("nothing", ["ls"])
    api.call("POST", f"/api/v1/workloads/{identity}/exec", 400, json={"command": []})


def test_commands_end_when_nobody_is_left(api: Api) -> None:
    identity = talks(api)
    now = [0.0]
    kept = Sessions(api.stage.service, clock=lambda: now[0], sweep_every=3600)
    attempt = AttemptId(identity, "task-0", 1)
    lonely, watched, over = Command(["sleep"]), Command(["sleep"]), Command(["true"])
    ids = [kept.add(command, attempt) for command in (lonely, watched, over)]
    with kept.reading(ids[1]):
        now[0] = sessions.AWAY + 1
        assert kept.sweep() == 1
    assert (lonely.killed, watched.killed) == (True, False)
    with pytest.raises(errors.NotFound):
        kept.get(ids[2])
    api.call("DELETE", f"/api/v1/workloads/{identity}", 202)
    until(lambda: identity not in api.stage.service.board.workloads)
    kept.sweep()
    assert watched.killed  # its attempt has ended


# -- changes ----------------------------------------------------------------------------------------


def test_changes_as_they_happen(api: Api, client: Client) -> None:
    early = api.submit("early")["workloadId"]
    api.running(early)
    with closing(client.watch()) as changes:  # opens at once: nothing from here on is missed
        identity = api.submit("late")["workloadId"]
        for change in changes:
            assert change.item["id"] == identity
            if change.item["phase"] == "Running":
                break
        api.call("DELETE", f"/api/v1/workloads/{identity}", 202)
        assert next(change for change in changes if change.kind == "deleted").item == {"id": identity}


def test_a_right_that_is_taken_away_ends_what_is_watched(api: Api, client: Client) -> None:
    token = program(api, "reader", (SYSTEM.id, Place()))["Authorization"].removeprefix("Bearer ")
    with (
        closing(Client(client.url, token)) as reader,
        closing(reader.watch()) as changes,
    ):
        early = api.submit("early")["workloadId"]
        assert next(changes).item["id"] == early
        api.stage.loop.call(lambda draft: draft.drop(api.stage.loop.state.access.seen.rules["reader-0"]))
        api.submit("late")
        seen = []
        with pytest.raises(PliantError, match="workloads:read"):  # the client asks again, and is refused
            seen.extend(change.item.get("name") for change in changes)
        assert "late" not in seen


def test_no_chunk_is_sent_once_the_right_is_lost(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "EVERY", 0.0)
    may = Principal("reader", grants=(Grant(SYSTEM.id),))
    state = SimpleNamespace(resolve=lambda: may)
    request: Any = SimpleNamespace(app=api.http.app, state=state, path_params={"identity": talks(api)})
    closed = []

    async def chunks() -> AsyncIterator[bytes]:
        try:
            yield b"1"
            state.resolve = lambda: replace(may, grants=())
            yield b"2"
        finally:
            closed.append(True)

    async def sent() -> list[bytes]:
        allowed = guard.while_allowed(request, "workloads:logs", guard.workload, chunks())
        return [chunk async for chunk in allowed]

    assert asyncio.run(sent()) == [b"1"] and closed


def test_changes_of_one_project(api: Api, client: Client) -> None:
    api.call("POST", "/api/v1/org-unit/projects", 201, json={"name": "other"})
    with closing(client.watch("other")) as changes:
        api.submit("mine")
        body = {"name": "theirs", "projectName": "other", "spec": {"image": "ubuntu"}}
        api.call("POST", "/api/v1/workloads/trainings", 202, json=body)
        assert next(changes).item["name"] == "theirs"


def test_a_broken_connection_is_taken_up_where_it_broke(api: Api, client: Client) -> None:
    with closing(client.watch()) as changes:
        gone = api.submit("gone")["workloadId"]
        last = next(change for change in changes if change.item.get("phase") == "Running").id
    assert last
    api.call("DELETE", f"/api/v1/workloads/{gone}", 202)
    until(lambda: gone not in api.stage.service.board.workloads)
    fresh = api.submit("fresh", gpus=None)["workloadId"]
    wanted = {("deleted", gone), ("workload", fresh)}
    with closing(client.watch(after=last)) as changes:
        for change in changes:
            wanted.discard((change.kind, change.item["id"]))
            if not wanted:
                break
    assert not wanted


def raw(client: Client, last: str = "") -> Any:
    headers = {"Last-Event-ID": last} if last else {}
    return closing(client._http.stream("GET", "/api/v1/watch", headers=headers))


@pytest.mark.parametrize("last", ["7-1", "1-999999", "nonsense"])
def test_an_unknown_place_means_everything_anew(api: Api, client: Client, last: str) -> None:
    """A restarted server counts from the beginning: its client must not wait for old numbers."""
    api.submit("a", gpus=None)
    with raw(client, last) as stream:
        lines = (line for line in stream.lines() if line.startswith("event: "))
        assert list(islice(lines, 2)) == ["event: reset", "event: workload"]


def test_only_the_last_of_a_batch_can_be_resumed_from(api: Api, client: Client) -> None:
    for name in ("a", "b"):
        api.submit(name, gpus=None)
    batch = []
    with raw(client, "1-0") as stream:
        for line in stream.lines():
            batch.append(line.partition(":")[0])
            if batch[-1] == "id":
                break
    assert batch.count("event") >= 2


def test_watchers_that_leave_leave_nothing(api: Api, client: Client) -> None:
    for _ in range(3):
        with raw(client) as stream:
            assert next(stream.lines()) == ": connected"
    until(lambda: not any(thread.name == "pliant-pulse" for thread in threading.enumerate()))


def test_streams_end_with_the_server(api: Api) -> None:
    """Otherwise the server would wait, and then cut them off."""
    identity = talks(api)
    with served(api.stage) as client:
        log = client.logs(identity, follow=True)
        changes = client.watch()
        assert next(iter(log))
    assert list(log) == []
    with pytest.raises(Unreachable):
        next(changes)
    until(lambda: feeds() == 0)
