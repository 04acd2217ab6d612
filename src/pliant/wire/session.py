"""What clients send into the tasks of a workload: commands with their terminals, and input."""

from typing import Annotated, Required, TypedDict

from pliant.wire.limits import Length, Range, Text, Word

Screen = Annotated[int, Range(1, 10_000)]


class Command(TypedDict, total=False):
    """Body of POST /api/v1/workloads/{id}/exec: to run inside a task."""

    command: Required[Annotated[list[Text], Length(10_000, least=1)]]
    tty: bool
    stdin: bool
    rows: Screen  # default: 24
    columns: Screen  # default: 80
    pod: Word


class Connect(TypedDict, total=False):
    """Body of POST /api/v1/workloads/{id}/exec/port: a connection to a program of a task. Its bytes are the
    output and input of the session; any exit code but 0 says that nobody answered, or that it broke off."""

    port: Required[Annotated[int, Range(1, 65_535)]]
    pod: Word


class Reach(TypedDict):
    """Of GET /api/v1/workloads/{id}/exec/port."""

    tunnel: bool  # true: by POST to that path; false: at the port itself, on the server's machine


class Resized(TypedDict):
    """Body of POST /api/v1/exec/{session}/resize."""

    rows: Screen
    columns: Screen


class Taken(TypedDict):
    """Of POST /api/v1/workloads/{id}/input."""

    taken: int  # bytes, one more for the end; send the rest again


class ExecStarted(TypedDict):
    id: str


class ExecState(TypedDict):
    exitCode: int | None
