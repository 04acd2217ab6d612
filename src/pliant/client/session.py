"""A command run inside a task: its output on one connection, its input on another."""

from collections.abc import Iterator

from pliant.client.errors import PliantError
from pliant.client.transport import Transport, segment


class Exec:
    """One running command. Read `output()` in one thread; send and close its input in another."""

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
            self._input.close()  # its reader is gone: there is nothing more to send
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
        """Of the side that reads; a sender may be in the middle of a request of its own."""
        self._output.close()
