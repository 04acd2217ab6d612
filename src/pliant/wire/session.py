"""What is sent into the tasks of a workload: commands with their terminals, and input."""

from typing import Annotated, Required, TypedDict

from pliant.wire.limits import Length, Range, Text, Word

Screen = Annotated[int, Range(1, 10_000)]


class Command(TypedDict, total=False):
    """Body of POST /api/v1/workloads/{id}/exec: to run inside a task."""

    command: Required[Annotated[list[Text], Length(10_000, least=1)]]
    tty: bool
    stdin: bool
    rows: Screen  # 24 if not said
    columns: Screen  # 80
    pod: Word


class Resized(TypedDict):
    """Body of POST /api/v1/exec/{session}/resize."""

    rows: Screen
    columns: Screen


class Taken(TypedDict):
    """Of POST /api/v1/workloads/{id}/input."""

    taken: int  # bytes, one more for the end; the rest is to be sent again


class ExecStarted(TypedDict):
    id: str


class ExecState(TypedDict):
    exitCode: int | None
