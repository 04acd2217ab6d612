"""The server as a process: start it in its own session, wait until it is ready, wait until it is gone."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pliant.cli.session import client_for
from pliant.client.errors import Conflict, PliantError, Refused, Unauthorized, Unreachable
from pliant.client.locate import authority_in, server_record

START_LIMIT = 60.0  # seconds within which a new server must answer, even on a busy machine


class PortTaken(Conflict):
    """The requested port is taken."""


_KINDS: dict[int, type[PliantError]] = {
    4: Unauthorized,
    5: Conflict,
    6: Refused,
    8: Unreachable,
    10: PortTaken,
}


def arguments(
    state: str,
    *,
    simulate: Sequence[str] = (),
    kubeconfig: str | None = None,
    scheduler_name: str | None = None,
    images: Sequence[str] = (),
    share_image: str | None = None,
    port: int | None = None,
    take_over: bool = False,
    standby: bool = False,
    database: str | None = None,
    lease: float | None = None,
    unknown: str = "",
    host: str | None = None,
    tls: bool | None = None,
    certificate: tuple[str, str] | None = None,
    openid: str | None = None,
) -> list[str]:
    """The command line of a server; `unknown`: "adopt" or "end" running tasks that are not in its database.

    `certificate`: the file of the chain and the file of the key; `tls` None: the setting of the last start.
    """
    words = [sys.executable, "-m", "pliant.app", "serve", "--state", state]
    for spec in simulate:
        words += ["--simulate", spec]
    if kubeconfig is not None:
        words += ["--kubeconfig", os.path.abspath(kubeconfig)]
    if scheduler_name is not None:
        words += ["--scheduler-name", scheduler_name]
    for image in images:
        words += ["--image", image]
    if share_image is not None:
        words += ["--share-image", share_image]
    if port is not None:
        words += ["--port", str(port)]
    if take_over:
        words.append("--take-over")
    if standby:
        words.append("--standby")
    if database is not None:
        words += ["--database", database]
    if lease is not None:
        words += ["--lease", str(lease)]
    if host is not None:
        words += ["--host", host]
    if tls is not None:
        words.append("--tls" if tls else "--no-tls")
    if certificate is not None:
        words += ["--certificate", *certificate]
    if openid is not None:
        words += ["--openid", openid if openid == "none" else os.path.abspath(openid)]
    if unknown:
        words += ["--unknown", unknown]
    return words


def prepare(state: str) -> None:
    """Create the state folder, accessible to its owner only. Raises PliantError."""
    try:
        os.makedirs(state, mode=0o700, exist_ok=True)
    except OSError as error:
        raise PliantError(
            f"Cannot create the state folder {state}: {error.strerror}.", "Choose another with --state DIR."
        ) from error


def start(words: Sequence[str], state: str) -> dict[str, Any]:
    """Start a server, wait until it is ready and return its record. Raises PliantError with its reason."""
    prepare(state)
    role = "standby" if "--standby" in words else "server"
    log = os.path.join(state, f"{role}.log")
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise PliantError(
            f"Cannot write {log}: {error.strerror}.", "Choose another folder with --state DIR."
        ) from error
    try:
        before = os.fstat(output).st_size
        process = subprocess.Popen(
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd="/",
        )
    finally:
        os.close(output)
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline:
        code = process.poll()
        if code is not None:
            raise _failure(code, log, before)
        record = server_record(state, role) or server_record(state)  # a standby server may lead at once
        if record is not None and record.get("pid") == process.pid and ready(record, state):
            process.returncode = 0  # the server outlives this process: avoids Popen's warning
            return record
        time.sleep(0.02)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    raise PliantError(
        f"The server did not answer within {START_LIMIT:.0f} s and was ended.", _last(log, before)
    )


def ready(record: Mapping[str, Any], state: str) -> bool:
    client = client_for(record["url"], None, None, authority_in(state, record))
    try:
        return client.ready()
    except PliantError:
        return False
    finally:
        client.close()


def alive(pid: int) -> bool:
    """True while that process runs; a zombie counts as gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        pass
    except OSError:
        return True
    if os.path.isdir("/proc/self"):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def wait_gone(pid: int, limit: float) -> bool:
    """Wait until that process is gone; False if it still runs after `limit` seconds."""
    deadline = time.monotonic() + limit
    while alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Said:
    """The warnings that the server of that state folder logs from now on."""

    def __init__(self, state: str) -> None:
        self._log = os.path.join(state, "server.log")
        self._at = os.path.getsize(self._log) if os.path.exists(self._log) else 0
        self._told: set[str] = set()

    def news(self) -> list[str]:
        """The new warnings since the last call; each sentence is returned once."""
        if not os.path.exists(self._log):
            return []
        lines = _last(self._log, self._at).splitlines()
        found = [line.partition(": ")[2] for line in lines if " WARNING " in line.partition(": ")[0]]
        fresh = [line for line in dict.fromkeys(found) if line not in self._told]
        self._told.update(fresh)
        return fresh


def standing_by(state: str) -> dict[str, Any] | None:
    """The record of the running standby server; None if there is none."""
    record = server_record(state, "standby")
    return record if record is not None and alive(int(record.get("pid", 0))) else None


def leading(state: str) -> dict[str, Any] | None:
    """The record of the leading server; waits up to START_LIMIT for a standby server to take the lead."""
    deadline = time.monotonic() + START_LIMIT
    while True:
        record = server_record(state)
        if record is not None and alive(int(record.get("pid", 0))):
            return record
        if standing_by(state) is None or time.monotonic() > deadline:
            return record
        time.sleep(0.1)


def left_behind(state: str) -> int:
    """How many attempts of this state folder still have running processes, by their environment in /proc."""
    mark = b"PLIANT_ATTEMPT_DIR=" + os.fsencode(os.path.join(os.path.realpath(state), "attempts")) + b"/"
    return len(set(_environments(mark)))


def _environments(mark: bytes) -> Iterator[bytes]:
    for entry in os.scandir("/proc") if os.path.isdir("/proc") else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry.name}/environ", "rb") as file:
                yield from (word for word in file.read().split(b"\0") if word.startswith(mark))


def _failure(code: int, log: str, start_at: int) -> PliantError:
    kind = _KINDS.get(code, PliantError)
    text = _last(log, start_at)
    lines = text.splitlines()
    if not lines:
        return kind(f"The server ended with exit code {code} and printed nothing.", f"Its log: {log}")
    said = [line for line in lines if line.startswith("pliant: ")]  # other lines may be of another server
    reason = (said or lines)[-1].removeprefix("pliant: ")
    if code in (1, 2, 3, 7, *_KINDS):
        return kind(reason)
    return PliantError(f"The server ended with exit code {code}.", "\n".join(lines[-5:]))


def _last(log: str, start_at: int) -> str:
    """The last 10 lines that were written to the log after the offset `start_at`."""
    with open(log, "rb") as file:
        file.seek(start_at)
        return "\n".join(file.read().decode("utf-8", "replace").strip().splitlines()[-10:])
