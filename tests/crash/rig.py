"""A real server over a private folder, tasks that record each of their starts, and the truth about them.

The truth comes from /proc and from the journal to which every attempt appends, never from the server.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from pliant.client import Client
from pliant.client.errors import PliantError
from pliant.client.locate import server_record
from tests.crash.forked import Served

T = TypeVar("T")

JOB = (
    'trap \'echo "$PLIANT_ATTEMPT term" >> "$JOURNAL"; exit 0\' TERM; '
    'echo "$PLIANT_ATTEMPT start $CUDA_VISIBLE_DEVICES" >> "$JOURNAL"; '
    "while :; do sleep 0.2 & wait $!; done"
)
"""A job that records its start and the request to stop."""

LITTERING = (
    'echo "$PLIANT_ATTEMPT start $CUDA_VISIBLE_DEVICES" >> "$JOURNAL"; setsid sleep 1000 & exec sleep 1001'
)
"""A job that leaves a child behind in a session of its own."""


class Rig:
    """One state folder and the server over it, if one runs."""

    def __init__(self, folder: Path, simulate: str = "1x4") -> None:
        self.state = folder / "state"
        self.journal = folder / "journal"
        self.journal.touch()
        self.simulate = simulate
        self.server: Served | None = None
        self.submitted: dict[str, str] = {}  # name -> id of accepted workloads that are not deleted

    # -- the server --------------------------------------------------------------------------------

    def start(
        self, halt: str = "", *, take_over: bool = False, wait: bool = True, unknown: str = "refuse"
    ) -> None:
        """Starts a server; `halt` is the value of PLIANT_HALT, `unknown` what it does with unknown tasks."""
        words = ["serve", "--state", str(self.state), "--simulate", self.simulate]
        words += [*(["--take-over"] if take_over else []), "--unknown", unknown]
        self.server = Served(words, self.state.parent / "server.log", os.environ | {"PLIANT_HALT": halt})
        if wait:
            self.until(lambda: self.ready() or self.server is None or self.server.poll() is not None, "ready")

    def ready(self) -> bool:
        assert self.server is not None
        record = server_record(str(self.state))
        if record is None or record["pid"] != self.server.pid:
            return False
        try:
            with Client.connect(state=str(self.state)) as client:
                return client.ready()
        except PliantError:
            return False

    def died(self) -> bool:
        return self.server is None or self.server.poll() is not None

    def exit_code(self) -> int | None:
        """The server's exit code; None while it runs."""
        return self.server.poll() if self.server is not None else None

    def kill(self) -> None:
        """Kills the server with SIGKILL."""
        if self.server is not None:
            self.server.kill()
            self.server.wait()

    def restart(self) -> None:
        """Kills the server if it runs, then starts one without a halt."""
        self.kill()
        self.start()

    @contextmanager
    def client(self) -> Iterator[Client]:
        with Client.connect(state=str(self.state)) as client:
            yield client

    def ask(self, run: Callable[[Client], T]) -> T | None:
        """Sends one request; None if the server died meanwhile."""
        with suppress(PliantError), self.client() as client:
            return run(client)
        return None

    # -- workloads ---------------------------------------------------------------------------------

    def submit(self, name: str, gpus: int, script: str = JOB, **more: Any) -> str | None:
        """Submits to the default project; returns its id if the server answered that it is accepted."""
        kind = "Workspace" if more.pop("interactive", None) else "Training"
        answer = self.ask(lambda client: client.submit(kind, self.body(name, gpus, script, **more)))
        if answer is not None:
            self.submitted[name] = answer["workloadId"]
            return self.submitted[name]
        return None

    def body(self, name: str, gpus: int, script: str = JOB, **more: Any) -> Any:
        """A submission to the default project."""
        spec: dict[str, Any] = {
            "image": "ubuntu",
            "commandArgv": ["bash", "-c", script],
            "compute": {"gpuDevicesRequest": gpus},
            "environmentVariables": [{"name": "JOURNAL", "value": str(self.journal)}],
            "terminationGracePeriodSeconds": 5,
        } | more
        return {"name": name, "projectName": "default", "spec": spec}

    def delete(self, name: str) -> None:
        """Deletes it; the server may die before or after it accepts the request."""
        identity = self.submitted.pop(name)
        self.ask(lambda client: client.delete(identity))

    def items(self) -> dict[str, dict[str, Any]]:
        """Name -> workload, as the server shows it."""
        with self.client() as client:
            found = list(client.workloads())
        names = Counter(item["name"] for item in found)
        assert all(count == 1 for count in names.values()), f"listed more than once: {names}"
        return {item["name"]: dict(item) for item in found}

    def settled(self, want: dict[str, str]) -> dict[str, dict[str, Any]]:
        """Waits until the workloads have exactly these names and phases."""

        def look() -> bool:
            return {name: item["phase"] for name, item in self.items().items()} == want

        self.until(look, f"phases {want}", seen=lambda: {n: i["phase"] for n, i in self.items().items()})
        return self.items()

    # -- the truth ---------------------------------------------------------------------------------

    def calm(self) -> bool:
        """True if every workload runs or waits, and exactly those shown as running have live processes."""
        items = self.items().values()
        return all(item["phase"] in ("Running", "Pending") for item in items) and (
            {attempt.split("/")[0] for attempt in self.alive()}
            == {item["id"] for item in items if item["phase"] == "Running"}
        )

    def phases(self) -> dict[str, str]:
        return {name: item["phase"] for name, item in self.items().items()}

    def starts(self) -> Counter[str]:
        """Attempt -> number of its starts, from the journal."""
        lines = [line.split() for line in self.journal.read_text().splitlines()]
        return Counter(words[0] for words in lines if words[1] == "start")

    def alive(self) -> dict[str, list[int]]:
        """Attempt -> its processes in this folder, by their environment in /proc."""
        found: dict[str, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                environ = environ_of(int(entry.name))
                if environ.get("PLIANT_ATTEMPT_DIR", "").startswith(f"{self.state}/"):
                    found.setdefault(environ["PLIANT_ATTEMPT"], []).append(int(entry.name))
        return found

    def verify(self) -> None:
        """Asserts what must hold whenever the server has settled."""
        doubled = {attempt: count for attempt, count in self.starts().items() if count > 1}
        assert not doubled, f"attempts that ran twice: {doubled}"
        missing = set(self.submitted) - set(self.items())
        assert not missing, f"accepted and lost: {missing}"
        wrong = ["not looked yet"]

        def agree() -> bool:
            wrong[:] = self.differences()
            return not wrong

        # Repeats, as a late resize may fall between two looks.
        self.until(agree, "what lives is what is shown", seen=lambda: (wrong, self.alive(), self.items()))

    def differences(self) -> list[str]:
        """Differences now between live processes, the workloads shown and the GPUs shown."""
        items, alive = self.items(), self.alive()
        wrong, owners = list[str](), dict[str, str]()
        runs = {item["id"] for item in items.values() if item["phase"] == "Running"}
        if (lives := {attempt.split("/")[0] for attempt in alive}) != runs:
            wrong.append(f"{lives} live, {runs} are said to run")
        for attempt, pids in alive.items():
            cards = {
                card for pid in pids for card in environ_of(pid).get("CUDA_VISIBLE_DEVICES", "").split(",")
            }
            wrong += [f"{owners[card]} and {attempt} have {card}" for card in sorted(cards & set(owners))]
            owners |= dict.fromkeys(cards - {""}, attempt)
        shown = sum(item["allocatedResources"]["gpu"] for item in items.values())
        if shown != len(owners):
            wrong.append(f"{shown} GPUs are shown, {sorted(owners)} are in use")
        with self.client() as client:
            devices = [gpu["allocated"] for node in client.nodes() for gpu in node["gpus"]]
        if sum(devices) != shown or max(devices, default=0) > 1:
            wrong.append(f"{shown} GPUs are shown, of the devices {devices}")
        return wrong

    def until(
        self,
        holds: Callable[[], bool],
        what: str,
        seconds: float = 200,
        seen: Callable[[], Any] | None = None,
    ) -> None:
        """Polls a condition until a deadline."""
        began = time.monotonic()
        while (waited := time.monotonic() - began) < seconds:
            with suppress(PliantError):
                if holds():
                    return
            time.sleep(min(0.5, max(0.02, waited / 10)))
        log = (self.state.parent / "server.log").read_text()[-3000:]
        raise AssertionError(f"not within {seconds} s: {what}; seen: {seen() if seen else ''}\n{log}")

    def close(self) -> None:
        """Kills the server and everything that it started."""
        self.kill()
        for pids in self.alive().values():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def environ_of(pid: int) -> dict[str, str]:
    """A process's environment; empty if it is gone or a zombie."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if entry)
    return {key.decode(errors="replace"): value.decode(errors="replace") for key, _, value in pairs}
