"""Long-running routes: logs, commands inside tasks, changes as they happen. Nothing blocks the loop."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Annotated, Any

from fastapi import Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from pliant.api.context import Context, Here
from pliant.api.guard import needs, while_allowed, workload
from pliant.api.guard import session as session_of
from pliant.api.identity.auth import Caller, principal_now
from pliant.api.identity.principal import Principal
from pliant.api.late import Router
from pliant.api.responses.encoding import answer, answers, empty, encode
from pliant.api.schemas.models import Received
from pliant.api.streaming.feed import BEAT, feed
from pliant.control.board.view import Board, WorkloadView
from pliant.control.errors import Conflict, Refused
from pliant.model.workload import AttemptId
from pliant.wire.session import Command, Connect, ExecStarted, ExecState, Reach, Resized, Taken

router = Router(prefix="/api/v1", tags=["streams"])

KEEP_ALIVE = 15.0
"""Seconds without news after which a comment is sent, so that a client that is gone is noticed."""

READ_FOR = 0.25
"""Longest single wait for the output of a command, in seconds."""

_OCTETS: dict[str, Any] = {"content": {"application/octet-stream": {}}, "description": "Raw output"}
_RAW = {"requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}}
_NO_BUFFER = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


# -- logs -------------------------------------------------------------------------------------------


@router.get(
    "/workloads/{identity}/logs",
    dependencies=[needs("workloads:logs", workload)],
    responses={200: {"content": {"text/plain": {}}}},
)
def logs(
    identity: str,
    request: Request,
    here: Here,
    caller: Caller,
    follow: bool = False,
    tail: Annotated[int | None, Query(ge=0, le=10**9)] = None,
    since: Annotated[int | None, Query(alias="sinceSeconds", ge=0, le=10**9)] = None,
    pod: str = "",
    timestamps: bool = False,
    attempt: Annotated[int, Query(ge=0, le=10**9, description="0: the newest one")] = 0,
) -> Response:
    """What a task prints. With `follow` it ends with the workload, or with the attempt that was named."""
    here.streams.check(caller.person)
    began = None if since is None else here.service.now() - since * 1000
    chunks = here.service.logs(
        identity, task=pod, number=attempt, follow=follow, tail=tail, since=began, timestamps=timestamps
    )
    first = next(chunks, None)  # what cannot be read is refused before the answer begins
    source = feed(_whole(first, chunks) if first is not None else iter(()), "logs", here.closing)
    counted = here.streams.counted(caller.person, while_allowed(request, "workloads:logs", workload, source))
    return StreamingResponse(counted, media_type="text/plain; charset=utf-8", headers=_NO_BUFFER)


def _whole(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


# -- commands inside tasks --------------------------------------------------------------------------


@router.post(
    "/workloads/{identity}/exec",
    dependencies=[needs("workloads:exec", workload)],
    **answers(201, ExecStarted),
)
def start(identity: str, body: Received[Command], here: Here, caller: Caller) -> Response:
    """Run a command in the environment of a running task."""
    attempt = _attempt(here.service.workload(identity), body.get("pod", ""))
    with here.sessions.room(caller.person):
        try:
            session = here.service.exec(
                identity,
                body["command"],
                task=body.get("pod", ""),
                tty=body.get("tty", False),
                stdin=body.get("stdin", False),
                rows=body.get("rows", 24),
                columns=body.get("columns", 80),
            )
        except (OSError, ValueError) as error:
            raise Conflict(f"The command could not be started: {error}.") from error
        return answer({"id": here.sessions.add(session, attempt, caller.person)}, 201)


@router.get(
    "/workloads/{identity}/exec/port",
    dependencies=[needs("workloads:exec", workload, writes=False)],
    **answers(200, Reach),
)
def reach(identity: str, here: Here, pod: str = "") -> Response:
    """How a program that listens on a port of a running task is reached."""
    return answer({"tunnel": here.service.tunnels(identity, task=pod)})


@router.post(
    "/workloads/{identity}/exec/port",
    dependencies=[needs("workloads:exec", workload)],
    **answers(201, ExecStarted),
)
def connect(identity: str, body: Received[Connect], here: Here, caller: Caller) -> Response:
    """Connect to a program that listens on a port of a running task; its bytes are those of the session."""
    pod = body.get("pod", "")
    attempt = _attempt(here.service.workload(identity), pod)
    with here.sessions.room(caller.person):
        try:
            session = here.service.connect(identity, body["port"], task=pod)
        except (OSError, ValueError) as error:
            raise Conflict(f"The connection could not be made: {error}.") from error
        return answer({"id": here.sessions.add(session, attempt, caller.person)}, 201)


def _attempt(view: WorkloadView, pod: str) -> AttemptId:
    """The current attempt of that task, or of the first one; the service refuses a wrong name."""
    names = {f"{view.workload.name}-{task.name}": task for task in view.tasks}
    names |= {task.name: task for task in view.tasks}
    task = names.get(pod, view.tasks[0])
    return AttemptId(view.workload.id, task.name, task.attempt)


Attempt = Annotated[int, Query(ge=0, le=10**9, description="0: the one that runs")]


@router.post(
    "/workloads/{identity}/input",
    dependencies=[needs("workloads:exec", workload, writes=False)],
    openapi_extra=_RAW,
    **answers(200, Taken),
)
async def type_in(
    identity: str,
    request: Request,
    here: Here,
    pod: str = "",
    attempt: Attempt = 0,
    stream: Annotated[int, Query(ge=0, lt=2**32, description="A number of the sender's choice")] = 0,
    at: Annotated[int, Query(ge=0, lt=2**63, description="Bytes that it sent before")] = 0,
    eof: bool = False,
) -> Response:
    """Standard input of a task that was submitted with `stdin`; with `eof` it is the last.

    What a sender sends a second time, after an answer that was lost, is typed once. The answer may be less
    than was sent: the task has not read what came before.
    """
    data = await request.body()

    def send() -> int:
        found = here.service.input(identity, task=pod, number=attempt)
        try:
            return found.send(data, stream=stream, at=at, end=eof)
        except (OSError, ValueError) as error:
            raise Conflict(f"The input was not taken: {error}.") from error

    return answer({"taken": await run_in_threadpool(send)})


@router.post(
    "/workloads/{identity}/input/resize",
    dependencies=[needs("workloads:exec", workload, writes=False)],
    status_code=204,
    response_model=None,
)
def resize_terminal(
    identity: str, body: Received[Resized], here: Here, pod: str = "", attempt: Attempt = 0
) -> Response:
    """The size of the terminal at which a task with `tty` is watched."""
    try:
        here.service.input(identity, task=pod, number=attempt).resize(body["rows"], body["columns"])
    except (OSError, ValueError) as error:
        raise Conflict(f"The terminal was not resized: {error}.") from error
    return empty()


@router.get(
    "/exec/{session}/output",
    dependencies=[needs("workloads:exec", session_of, writes=False)],
    responses={200: _OCTETS},
)
def output(session: str, request: Request, here: Here) -> Response:
    """Raw output until the command ends; for one reader at a time."""
    here.sessions.check_free(session)
    source = feed(_output(here, session), "exec", here.closing)
    allowed = while_allowed(request, "workloads:exec", session_of, source)
    return StreamingResponse(allowed, media_type="application/octet-stream", headers=_NO_BUFFER)


def _output(here: Context, identity: str) -> Iterator[bytes]:
    with here.sessions.reading(identity) as session:
        while (chunk := session.read(READ_FOR)) != b"":
            yield chunk or b""


@router.post(
    "/exec/{session}/input",
    dependencies=[needs("workloads:exec", session_of, writes=False)],
    status_code=204,
    response_model=None,
    openapi_extra=_RAW,
)
async def send(session: str, request: Request, here: Here, eof: bool = False) -> Response:
    """Raw input; with `eof` it is the last."""
    found = here.sessions.get(session)
    data = await request.body()
    try:
        if data:
            await run_in_threadpool(found.write, data)
        if eof:
            await run_in_threadpool(found.close_stdin)
    except (OSError, ValueError) as error:
        raise Conflict(f"The command takes no more input: {error}.") from error
    return empty()


@router.post(
    "/exec/{session}/resize",
    dependencies=[needs("workloads:exec", session_of, writes=False)],
    status_code=204,
    response_model=None,
)
def resize(session: str, body: Received[Resized], here: Here) -> Response:
    """The size of the client's terminal."""
    try:
        here.sessions.get(session).resize(body["rows"], body["columns"])
    except (OSError, ValueError) as error:
        raise Conflict(f"The command has no terminal to resize: {error}.") from error
    return empty()


@router.get(
    "/exec/{session}",
    dependencies=[needs("workloads:exec", session_of, writes=False)],
    **answers(200, ExecState),
)
def state(session: str, here: Here) -> Response:
    """Its exit code; null while it runs."""
    return answer({"exitCode": here.sessions.get(session).exit_code()})


@router.delete(
    "/exec/{session}",
    dependencies=[needs("workloads:exec", session_of, writes=False)],
    status_code=204,
    response_model=None,
)
def kill(session: str, here: Here) -> Response:
    here.sessions.end(session)
    return empty()


# -- changes as they happen -------------------------------------------------------------------------


@router.get(
    "/watch", dependencies=[needs("workloads:read")], responses={200: {"content": {"text/event-stream": {}}}}
)
async def watch(
    request: Request,
    here: Here,
    caller: Caller,
    project: str = "",
    last: Annotated[str, Header(alias="Last-Event-ID", max_length=100)] = "",
) -> Response:
    """Every change of a workload from now on, or from Last-Event-ID.

    Events: `workload` with the whole item; `deleted` with its id; `reset` when what happened since
    Last-Event-ID is not known: forget everything, all workloads follow.
    """
    here.streams.check(caller.person)
    changes = here.streams.counted(caller.person, Changes(request, project, last, caller).stream())
    return StreamingResponse(changes, media_type="text/event-stream", headers=_NO_BUFFER)


class Changes:
    """One client's view of what changes. Resume ids are `<epoch>-<version of the board>`."""

    def __init__(self, request: Request, project: str, last: str, caller: Principal) -> None:
        self._request = request
        self._here = here = request.app.state.context
        self._caller = caller
        self._project = project
        board = here.service.board
        epoch, _, number = last.partition("-")
        known = epoch == str(here.server.epoch) and number.isascii() and number.isdigit()
        self._version = board.version
        self._reset = False
        self._mine: set[str] | None = {
            view.workload.id for view in board.workloads.values() if self._shows(view)
        }
        if last and known and int(number) <= board.version and caller.all_seeing:
            self._version = int(number)
            self._mine = None  # which deleted ones this client has seen is not known: it is told of all
        elif last:
            self._reset = True

    async def stream(self) -> AsyncIterator[bytes]:
        with self._here.pulse.listen() as news:
            yield b": connected\n\n"
            quiet = 0.0
            while True:
                news.clear()
                board, changed = self._here.service.watch(self._version, 0)
                if board.version > self._version or self._reset:
                    try:
                        self._caller = await principal_now(self._request)
                    except Refused:
                        return
                    if not self._caller.may("workloads:read"):
                        return
                    text = await run_in_threadpool(self._events, board, changed)
                    if text:
                        yield text
                        quiet = 0.0
                    continue
                try:
                    async with asyncio.timeout(BEAT):
                        await news.wait()
                except TimeoutError:
                    if self._here.closing():
                        return
                    quiet += BEAT
                    if quiet >= KEEP_ALIVE:
                        yield b": still here\n\n"
                        quiet = 0.0

    def _events(self, board: Board, changed: frozenset[str] | None) -> bytes:
        """The events since the last known board; this board is the last known one from then on."""
        renderer = self._here.renderer(self._caller, board)
        events: list[tuple[str, bytes]] = []
        if changed is None or self._reset:
            events.append(("reset", b"{}"))
            self._reset, self._mine = False, set()
            changed = frozenset(board.workloads)
        for identity in sorted(changed):
            view = board.workloads.get(identity)
            if view is None:
                if self._mine is None or identity in self._mine:
                    events.append(("deleted", encode({"id": identity})))
            elif self._shows(view):
                if self._mine is not None:
                    self._mine.add(identity)
                events.append(("workload", encode(renderer.workload(view))))
        self._version = board.version
        return b"".join(self._framed(events))

    def _framed(self, events: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
        """Only the last event of a batch has an id: after a lost connection the batch is sent again."""
        batch = list(events)
        for at, (kind, data) in enumerate(batch, 1):
            mark = f"id: {self._here.server.epoch}-{self._version}\n" if at == len(batch) else ""
            yield f"event: {kind}\ndata: ".encode() + data + f"\n{mark}\n".encode()

    def _shows(self, view: WorkloadView) -> bool:
        wanted = not self._project or self._project in (view.project.id, view.project.name)
        return wanted and self._caller.sees(view, self._here.service.board)
