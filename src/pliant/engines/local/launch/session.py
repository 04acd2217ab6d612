"""Commands run inside a task's environment: exec, bash."""

import errno
import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # exit codes as shells have them

# A process gets its controlling terminal between setsid and exec. A server with threads has no hook there:
# this small program does it.
_ON_TERMINAL = """\
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
try:
    os.execvp(sys.argv[1], sys.argv[1:])
except OSError as error:
    print(f"{sys.argv[1]}: {error.strerror}", flush=True)
    sys.exit(126 if isinstance(error, PermissionError) else 127)
"""


class Child(Protocol):
    """A running command that is not a child of this process. Its exit code is negative for a signal."""

    pid: int
    pidfd: int

    def poll(self) -> int | None: ...

    def kill(self) -> None: ...


Begun = Callable[[Sequence[str], int, int, bool], Child]
"""Starts (argv, standard input, output, whether that is its terminal); the caller keeps the descriptors."""


class LocalSession:
    """One command with its own session, on a terminal or on pipes (stdout and stderr in one stream)."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        *,
        tty: bool,
        stdin: bool,
        rows: int,
        columns: int,
        begin: Begun | None = None,
    ) -> None:
        """`begin` starts it, if it is not to be a child of this process. Raises ValueError, with a text for
        people, if there is no command or the folder is gone."""
        if not argv:
            raise ValueError("exec needs a command")
        self._tty = tty
        self._writing, self._reading = threading.Lock(), threading.Lock()
        self._silent = False  # the output's end was read; the command itself may live on
        self._ended = False  # the reader was told the end, or the session was killed
        self._refused = b""  # what is read instead of output if the command could not start
        self._code: int | None = None
        self._process: subprocess.Popen[bytes] | Child | None = None
        self._fds: list[int] = []  # closed once, under both locks
        self._input: int | None = None
        theirs: list[int] = []
        try:
            if tty:
                self._output, terminal = os.openpty()
                theirs = [terminal]
                self._set_size(rows, columns)
                self._input = os.dup(self._output)
                inner, source, written = (
                    [sys.executable, "-S", "-E", "-c", _ON_TERMINAL, *argv],
                    terminal,
                    terminal,
                )
            else:
                self._output, written = os.pipe()
                theirs = [written]
                inner, source = list(argv), subprocess.DEVNULL
                if stdin:
                    source, self._input = os.pipe()
                    theirs.append(source)
            self._fds = [fd for fd in (self._output, self._input) if fd is not None]
            os.set_blocking(self._output, False)
            if begin is None:
                self._process = subprocess.Popen(
                    inner,
                    env=dict(env),
                    cwd=cwd,
                    stdin=source,
                    stdout=written,
                    stderr=written,
                    start_new_session=True,
                )
                self._fds.append(os.pidfd_open(self._process.pid))
            else:
                if source == subprocess.DEVNULL:
                    source = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                    theirs.append(source)
                self._process = begin(argv, source, written, tty)
                self._fds.append(self._process.pidfd)
        except OSError as error:
            if error.filename == cwd and not os.path.isdir(cwd):
                self._close()
                raise ValueError(f"the task's working folder {cwd} is gone") from None
            if error.errno not in (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR):
                self._close()
                raise
            self._close()
            self._refused = f"{argv[0]}: {error.strerror}\n".encode()
            self._code = NOT_FOUND if error.errno in (errno.ENOENT, errno.ENOTDIR) else NOT_EXECUTABLE
        except BaseException:
            self._close()
            raise
        finally:
            for fd in theirs:
                os.close(fd)

    @property
    def pid(self) -> int | None:
        """The command's process; None if it could not start."""
        return self._process.pid if self._process else None

    def watched(self) -> int:
        """A pidfd of the command, for the caller to close."""
        return os.dup(self._fds[-1])

    def read(self, timeout: float) -> bytes | None:
        """Once it has returned b'', the exit code is known."""
        with self._reading:
            if self._refused:
                text, self._refused = self._refused, b""
                return text
            if self._ended:
                return b""
            over = self.exit_code() is not None  # asked before the read: its last output is read
            poll = select.poll()
            poll.register(self._fds[-1], select.POLLIN)
            if not self._silent:
                poll.register(self._output, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(0 if over else timeout * 1000)}
            data = self._read() if self._output in ready else None
            if data:
                return data
            self._silent |= data == b""
            if over or (self._silent and self.exit_code() is not None):
                # Processes that the command left in the background may keep the stream open: do not wait.
                self._close()
                return b""
            return None

    def _read(self) -> bytes | None:
        try:
            return os.read(self._output, 65536)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EIO:  # so a terminal reports that no process has it open
                raise
            return b""

    def write(self, data: bytes) -> None:
        with (
            self._writing,
            suppress(OSError),
        ):  # a command that is gone takes no input: not the writer's mistake
            while data and self._input is not None and not self._ended:
                data = data[os.write(self._input, data) :]

    def close_stdin(self) -> None:
        if self._tty:
            self.write(b"\x04")  # a terminal's end of input
            return
        with self._writing:
            if self._input is not None and not self._ended:
                self._fds.remove(self._input)
                os.close(self._input)
            self._input = None

    def resize(self, rows: int, columns: int) -> None:
        with self._writing:
            if self._tty and not self._ended:
                self._set_size(rows, columns)

    def exit_code(self) -> int | None:
        if self._process is not None and self._code is None:
            code = self._process.poll()
            if code is not None:
                self._code = code if code >= 0 else 128 - code
        return self._code

    def kill(self) -> None:
        """End the command and let go of its streams."""
        if self._process is not None and self._process.poll() is None:
            if isinstance(self._process, subprocess.Popen):
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            else:
                self._process.kill()
        with self._reading:
            self._close()

    def _set_size(self, rows: int, columns: int) -> None:
        if rows > 0 and columns > 0:
            fcntl.ioctl(self._output, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _close(self) -> None:
        with self._writing:
            self._ended = True
            while self._fds:
                os.close(self._fds.pop())
