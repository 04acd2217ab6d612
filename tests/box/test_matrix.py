"""Calls every route of the permission matrix (matrix.txt) as nine real accounts, over both transports."""

import hashlib
import http.client
import json
import os
import re
import socket
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import pytest

from pliant.api.app import ROUTERS, ServerInfo, create_app
from pliant.api.connections.front import Front
from pliant.api.connections.listeners import open_port
from pliant.api.connections.peer import listen
from pliant.api.guard import needs_of
from pliant.control.usecases.changes import QueueChange
from pliant.model.identity import AccessKey, AccessRule, subject_of
from pliant.model.origin import Owner
from pliant.model.rights import TENANT, Place
from pliant.model.workload import Desired, Kind, Launch, Phase, Request, Task, TaskGroup, Workload
from tests.api.stage import IMAGE, SECRET, TOKEN, stage
from tests.box.accounts import account
from tests.box.accounts import acting as acting_as
from tests.box.box_rig import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LETTERS = "sdperavwn"
"""Letters of the nine accounts, in the order of the table's columns."""

KINDS = {it.value.lower() + ("" if it is Kind.DISTRIBUTED else "s"): it for it in Kind}
SECRET_OF_ALL = "7" * 43


class Row(NamedTuple):
    method: str
    path: str
    sort: str  # open | near | attempt | any | job | unit | none
    right: str
    answers: tuple[str, ...]  # nine letters for each object that is asked about


def table() -> list[Row]:
    rows, head = [], []
    for line in Path(__file__).with_name("matrix.txt").read_text("utf-8").splitlines():
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if words[0].islower():
            head = words
            continue
        rows.append(Row(*words, head[0], head[1] if len(head) > 1 else head[0], tuple(head[2:])))
    return rows


TABLE = table()


def test_the_table_names_every_route_once_and_its_right():
    routes = [route for router in ROUTERS for route in router.routes]
    found = {(method, route.path): needs_of(route).right for route in routes for method in route.methods}
    told = {(row.method, row.path): "open" if row.sort == "near" else row.right for row in TABLE}
    assert len(told) == len(TABLE), "a route is named twice"
    assert told == found


class House:
    """An application in this process with two departments that have one project each: ours and theirs."""

    def __init__(self, made, socket_path, port, people) -> None:
        self.stage, self.socket, self.port, self.people = made, socket_path, port, people
        self.jobs: dict[tuple[str, Kind], str] = {}
        self.rows: list[object] = []
        service = made.service
        self.ours = self.place("ours")
        self.theirs = self.place("theirs")
        assert service.board.projects
        roles = dict(zip(LETTERS, range(1, 9), strict=False))
        for letter, person in people.items():
            subject = subject_of("unix", person.pw_name)
            scope = {"s": TENANT, "d": Place(self.ours.department), "v": Place(self.ours.department)}
            if letter in roles:
                place = scope.get(letter, self.ours)
                self.rows.append(AccessRule(letter, subject, roles[letter], place, person.pw_uid))
            digest = hashlib.sha256(f"plk_{letter}_{SECRET_OF_ALL}".encode()).hexdigest()
            self.rows.append(AccessKey(letter, letter, letter, digest, subject, person.pw_name))
            self.submit(letter, self.ours, person)
        colleague = people["c"]
        self.submit("colleague", self.ours, colleague)
        self.submit("foreign", self.theirs, colleague)
        made.loop.call(lambda draft: [draft.put(row) for row in self.rows] and None)
        until(self.seen, "readers see all of it")

    def seen(self) -> bool:
        board = self.stage.service.board
        rows = {row.id for row in self.rows if not isinstance(row, Task)}
        return rows <= {*board.workloads, *board.access.rules, *board.access.keys}

    def place(self, name) -> Place:
        service = self.stage.service
        above = service.create_department(QueueChange(name=name), "root")
        project = service.create_project(QueueChange(name=name, department=above.id), "root")
        return Place(above.id, project.id)

    def submit(self, whose, place, person) -> None:
        """Adds one suspended workload of each kind; none is ever started."""
        for kind in Kind:
            name = f"{whose}-{kind.value.lower()}"
            owner = Owner(subject_of("unix", person.pw_name), person.pw_uid, person.pw_name)
            group = TaskGroup("task", Request(cpu=100))
            self.rows.append(
                Workload(
                    name, name, place.project, kind, Launch(IMAGE), (group,), user=person.pw_name,
                    owner=owner, desired=Desired.STOPPED, phase=Phase.STOPPED, serial=1000 + len(self.rows),
                )
            )  # fmt: skip
            self.rows.append(Task(name, "task-0", "task", 0))
            self.jobs[whose, kind] = name

    def objects(self, row: Row, letter: str) -> list[dict[str, str]]:
        """The values of the path's parameters, for each object that the table has an answer for."""
        filled = {"realm": "any", "kind": "trainings", "name": "nothing", "key": "nothing"}
        filled |= {
            "identity": "nothing",
            "session": "nothing",
            "task": "task-0",
            "number": "1",
            "pod": "nothing",
        }
        filled["workload"] = self.jobs[letter, Kind.TRAINING]
        if row.sort == "job":
            word = row.path.split("/")[4]
            kind = KINDS.get(word, Kind.TRAINING)
            return [filled | {"identity": self.jobs[who, kind]} for who in (letter, "colleague", "foreign")]
        if row.sort == "unit":
            what = "department" if "/departments/" in row.path else "project"
            return [filled | {"key": getattr(place, what)} for place in (self.ours, self.theirs)]
        return [filled]

    def calls(self, letter: str) -> list[tuple[str, str, str]]:
        """(method, path, body) of every call of the table, as that account sends it."""
        return [
            (row.method, _tried(row.method, row.path.format_map(words)), "" if row.method == "GET" else "{}")
            for row in TABLE
            for words in self.objects(row, letter)
        ]


def _tried(method: str, path: str) -> str:
    """Adds dryRun to a change; routes that do not take it are sent an empty body, which changes nothing."""
    once = ("/exec", "/server/", "/attempts/", "/trash/", "/token", "/what-if", "/preview", "/drain")
    writes = method != "GET" and not any(word in path for word in once)
    return f"{path}?dryRun=true" if writes else path


def asked(link, calls, headers) -> list[int]:
    """The status of each call; does not read endless streams."""
    found = []
    for method, path, body in calls:
        link.request(method, path, body or None, {"Content-Type": "application/json", **headers})
        answer = link.getresponse()
        found.append(answer.status)
        if answer.headers.get_content_type() == "text/event-stream":
            link.close()
        else:
            answer.read()
    return found


class Local(http.client.HTTPConnection):
    """A connection over the Unix socket."""

    def __init__(self, place) -> None:
        super().__init__("localhost")
        self.place = place

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.place))


def over_unix(house, letter) -> list[int]:
    calls = house.calls(letter)

    def send(pipe):
        with open(pipe, "w", closefd=False) as file:
            file.write(json.dumps(asked(Local(house.socket), calls, {})) + "\0")

    with acting_as(house.people[letter], send) as child:
        child.until(b"\0")
        return json.loads(child.said.rstrip(b"\0"))


def over_tcp(house, letter) -> list[int]:
    headers = {"Authorization": f"Bearer plk_{letter}_{SECRET_OF_ALL}"}
    with closing(http.client.HTTPConnection("127.0.0.1", house.port)) as link:
        return asked(link, house.calls(letter), headers)


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    with ExitStack() as stack:
        people = {letter: stack.enter_context(account(f"m{letter}")) for letter in (*LETTERS, "c")}
        base = Path("/run") / f"plt-matrix-{os.getpid()}"
        base.mkdir(mode=0o755)
        stack.callback(lambda: [*[file.unlink() for file in base.iterdir()], base.rmdir()])
        made = stack.enter_context(stage(tmp_path_factory.mktemp("matrix")))
        info = ServerInfo(
            url="http://127.0.0.1:1", version="1", pid=1, started=1, state="/state", epoch=1, simulated=True
        )
        app = create_app(
            made.service, token=lambda: TOKEN, secret=SECRET, server=info, shutdown=made.asked.append,
            backup=made.store.backup, bundle=lambda: b"PK", box=True, least=1000,
        )  # fmt: skip
        front = Front(app, None, patience=1)
        tcp = open_port("127.0.0.1", 0)
        sockets = [listen(base / "sock", 0o666), tcp]
        for one in sockets:
            one.listen()
        thread = threading.Thread(target=front.run, kwargs={"sockets": sockets})
        found = House(made, base / "sock", tcp.getsockname()[1], people)
        thread.start()
        stack.callback(thread.join, 60)
        stack.callback(setattr, front, "should_exit", True)
        until(lambda: front.started, "the server answers")
        yield found


def told(house, letter, statuses) -> list[str]:
    """The answers that differ from the table."""
    at, wrong, column = iter(statuses), [], LETTERS.index(letter)
    for row in TABLE:
        answers = row.answers or {"attempt": ("." * 9,), "none": ("0" * 9,)}.get(row.sort, ("y" * 9,))
        for number, expected in enumerate(answer[column] for answer in answers):
            status = next(at)
            seen = {401: "?", 403: "."}.get(status, "y")
            if status == 404 and (row.sort in ("job", "unit", "none")):
                seen = "0"
            if row.sort in ("open", "near"):
                seen = "y"  # the refusal of a wrong password counts as allowed
            if seen != expected or status >= 500:
                wrong.append(f"{row.method} {row.path} of object {number}: {status}, should be {expected}")
    assert next(at, None) is None
    return wrong


@pytest.mark.parametrize("letter", LETTERS)
@pytest.mark.parametrize("transport", [over_unix, over_tcp], ids=["socket", "token"])
def test_every_route_as_every_role(house, letter, transport):
    assert told(house, letter, transport(house, letter)) == []


def test_without_a_token_nothing_is_open_from_elsewhere_but_what_says_so(house):
    rows = [row for row in TABLE if row.sort not in ("open", "near")]
    calls = [(row.method, re.sub(r"{\w+}", "1", row.path), "") for row in rows]
    with closing(http.client.HTTPConnection("127.0.0.1", house.port)) as link:
        answers = zip(rows, asked(link, calls, {}), strict=True)
    assert [(row, status) for row, status in answers if status != 401] == []
