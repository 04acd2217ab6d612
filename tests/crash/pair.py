"""Two servers over one PostgreSQL and one state folder. Reads which one leads from their records."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pliant.client import Client
from pliant.client.errors import NotFound, PliantError
from pliant.client.locate import local_token, server_record
from tests.crash.forked import Served
from tests.crash.rig import Rig

T = TypeVar("T")

PATIENCE = 240
"""Seconds; generous, as these tests do not measure time."""


class Pair(Rig):
    """One state folder and all servers started over it."""

    def __init__(self, folder: Path, database: str, simulate: str = "1x4") -> None:
        super().__init__(folder, simulate)
        self.database = database
        self.servers: dict[int, Served] = {}

    def serve(self, *options: str, halt: str = "") -> int:
        """Starts a server; returns its pid, which it keeps when it steps down."""
        log = self.state.parent / "server.log"
        words = ["serve", "--state", str(self.state), *options]
        server = Served(words, log, os.environ | {"PLIANT_HALT": halt})
        self.servers[server.pid] = server
        return server.pid

    def lead(self, *options: str, halt: str = "") -> int:
        """Starts the first server."""
        pid = self.serve("--simulate", self.simulate, "--database", self.database, *options, halt=halt)
        self.until(lambda: self.leads() == pid, "the first server leads", PATIENCE)
        return pid

    def stand_by(self, *options: str) -> int:
        """Starts the second server; returns the pid of the standby."""
        started = [self.serve("--standby", *options)]
        found: list[int] = []

        def stands() -> bool:
            if not self.lives(started[-1]):  # it was too early: another standby still ran
                started.append(self.serve("--standby", *options))
            found[:] = [self.stands()]
            return found != [0]

        self.until(stands, "a server stands by", PATIENCE)
        return found[0]

    def leader(self) -> int:
        """Waits for a leader; returns its pid."""
        found: list[int] = []

        def leads() -> bool:
            found[:] = [self.leads()]
            return found != [0]

        self.until(leads, "a server leads", PATIENCE)
        return found[0]

    def leads(self) -> int:
        """Pid of a leader that answers; 0 if there is none."""
        record = server_record(str(self.state))
        pid = int(record["pid"]) if record is not None else 0
        if not self.lives(pid):
            return 0
        with suppress(PliantError), self.patient() as client:
            return pid if client.server()["pid"] == pid else 0
        return 0

    def stands(self) -> int:
        """Pid of a standby that answers; 0 if there is none."""
        record = server_record(str(self.state), "standby")
        if record is None or not self.lives(int(record["pid"])):
            return 0
        with suppress(PliantError), self.standby() as client:
            server = client.server()
            return int(record["pid"]) if (server["role"], server["pid"]) == ("standby", record["pid"]) else 0
        return 0

    def lives(self, pid: int) -> bool:
        return pid in self.servers and self.servers[pid].poll() is None

    def patient(self) -> Client:
        """A client of the leader with a short timeout, for one that hangs. Raises FileNotFoundError."""
        record = server_record(str(self.state))
        if record is None:
            raise FileNotFoundError("no server has said that it leads")
        return Client(record["url"], socket=str(self.state / "sock"), timeout=5)

    def standby(self) -> Client:
        record = server_record(str(self.state), "standby")
        assert record is not None
        return Client(record["url"], local_token(str(self.state)), timeout=30)

    def insist(self, run: Callable[[Client], T]) -> T:
        """Repeats one request until a server has answered it."""
        found: list[T] = []

        def once() -> bool:
            with self.patient() as client:
                found.append(run(client))
            return True

        self.until(once, "an answer", PATIENCE)
        return found[0]

    def submit(self, name: str, gpus: int, *args: Any, **more: Any) -> str | None:
        """Submits until it is accepted; after a lost answer, the second try finds the name taken."""

        def once() -> bool:
            return Rig.submit(self, name, gpus, *args, **more) is not None or name in self.items()

        self.until(once, f"{name} is accepted", PATIENCE)
        self.submitted[name] = self.items()[name]["id"]
        return self.submitted[name]

    def delete(self, name: str) -> None:
        """Deletes until it is done; after a lost answer, the second try finds nothing."""
        identity = self.submitted.pop(name)

        def once(client: Client) -> None:
            with suppress(NotFound):
                client.delete(identity)

        self.insist(once)

    def items(self) -> dict[str, dict[str, Any]]:
        return self.insist(lambda client: {item["name"]: dict(item) for item in client.workloads()})

    def client(self) -> Any:
        return self.patient()

    def pids(self) -> dict[str, list[int]]:
        """Attempt -> its processes without those that others of them started."""
        alive = self.alive()
        return {
            attempt: sorted(pid for pid in pids if parent_of(pid) not in {0, *pids})
            for attempt, pids in alive.items()
        }

    def close(self) -> None:
        for server in self.servers.values():
            with suppress(ProcessLookupError):
                server.kill()
            server.wait()
        super().close()
        deadline = time.monotonic() + 120
        while self.alive() and time.monotonic() < deadline:
            super().close()
            time.sleep(0.05)


def parent_of(pid: int) -> int:
    """The pid of its parent; 0 if the process is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
