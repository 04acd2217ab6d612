"""Input and output of a running task, and of a command that runs inside one."""

import contextlib
import secrets
from collections.abc import Iterator

from pliant.client.errors import PliantError
from pliant.client.transport import Transport, segment


class TaskInput:
    """Standard input of one attempt of a task. It counts the bytes that it has sent; use one sender only."""

    def __init__(self, transport: Transport, workload_id: str, pod: str, attempt: int) -> None:
        self._http = transport.twin()
        self._path = f"/api/v1/workloads/{segment(workload_id)}/input"
        self._whom: list[tuple[str, str | int | bool | None]] = [("pod", pod), ("attempt", attempt)]
        self._stream = secrets.randbits(32)
        self._at = 0

    def send(self, data: bytes, *, end: bool = False) -> int:
        """Returns how many bytes were taken, plus 1 for the end. May be repeated after Unreachable."""
        query = [*self._whom, ("stream", self._stream), ("at", self._at), ("eof", end or None)]
        taken = int(self._http.call("POST", self._path, query=query, body=data, repeatable=True)["taken"])
        self._at += taken
        return taken

    def close(self) -> None:
        self._http.close()

    def resize(self, rows: int, columns: int) -> None:
        """Tell the task how large the terminal is now."""
        body = {"rows": rows, "columns": columns}
        with contextlib.closing(self._http.twin()) as http:  # another thread may be sending on self._http
            http.call("POST", f"{self._path}/resize", query=self._whom, body=body)


class Exec:
    """One running command: one thread reads `output()`, another one sends and closes its input."""

    def __init__(self, transport: Transport, session_id: str) -> None:
        self.id = session_id
        self._path = f"/api/v1/exec/{segment(session_id)}"
        self._input = transport.twin()
        self._output = transport.twin()

    def output(self) -> Iterator[bytes]:
        """Raw output until the command ends."""
        yield from self._output.stream("GET", f"{self._path}/output")

    def send(self, data: bytes) -> None:
        try:
            self._input.call("POST", f"{self._path}/input", body=data)
        except PliantError:
            self._input.close()  # the reader is gone
            raise

    def close_input(self) -> None:
        try:
            self._input.call("POST", f"{self._path}/input", query=[("eof", True)], body=b"")
        finally:
            self._input.close()

    def resize(self, rows: int, columns: int) -> None:
        """Tell the command how large the terminal is now."""
        self._output.call("POST", f"{self._path}/resize", body={"rows": rows, "columns": columns})

    def exit_code(self) -> int | None:
        """Its exit code; None while it runs."""
        code = self._output.call("GET", self._path).get("exitCode")
        return None if code is None else int(code)

    def kill(self) -> None:
        self._output.call("DELETE", self._path)

    def close(self) -> None:
        """Close the output connection only: a sender may be using the input connection."""
        self._output.close()
