"""The link to the scheduler: reads this task's allocation and reports what the task does with it. No torch.

The allocation comes from the server by long poll and also, if the server is down, from the file in the
attempt's folder. Reports are sent when the server answers; the job never waits for them.
"""

import json
import math
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from pliant.client.errors import Conflict, NotFound, PliantError, Unauthorized
from pliant.client.locate import authority_of, server_record
from pliant.client.transport import Transport

PROTOCOL = 1
POLL_S = 25.0  # of one long poll; the server allows 30
LOOK_S = 0.25  # between two reads of the file
AGAIN_S = (0.25, 5.0)  # pause before the next try of the server: the first, the longest
CLOCKS_MS = 5000  # a larger difference of the clocks is reported
ALONE = "cpu-0"  # the device of a task without GPUs


@dataclass(frozen=True, slots=True)
class Holding:
    """What one task holds, from the allocation document."""

    version: int
    devices: tuple[str, ...]  # to keep
    draining: tuple[tuple[str, int], ...]  # (device, ms left when this was made)


class AllocationSource(Protocol):
    """Gives an agent its allocation and takes its acknowledgements and reports."""

    def wait(self, after: int, timeout_s: float) -> Holding | None: ...
    def ack(self, version: int, kind: Literal["drained", "joined"], devices: Sequence[str]) -> None: ...
    def progress(self, status: Mapping[str, Any]) -> None: ...


class NoTask(PliantError):
    """This process is not inside a task of the scheduler; the message says what is missing."""


def shown_devices(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The UUIDs of this container's devices; empty if the container runtime names them otherwise."""
    names = environ.get("PLIANT_DEVICES", environ.get("NVIDIA_VISIBLE_DEVICES", "")).split(",")
    return tuple(name for name in names if name.startswith(("GPU-", "MIG-")))


class Link:
    """An AllocationSource with two threads, which `start` starts and `close` ends. Thread-safe."""

    def __init__(
        self,
        attempt: str,
        folder: Path,
        url: str,
        token: str,
        *,
        pid: int | None = None,
        file: Path | None = None,
        shown: Sequence[str] = (),
    ) -> None:
        """`attempt`: `<workload>/<task>/<number>`, `folder`: the attempt's, `pid`: the agent's or None (own).

        In a container the document is in another `file`, with the scheduler's names of the devices. The
        task's devices, in order, are then the devices that the container was `shown`.
        """
        workload, self.task, number = attempt.split("/")
        self.workload, self.number = workload, int(number)
        self._folder, self._url, self._token = folder, url, token
        self._file, self._shown = file, tuple(shown)
        self._pid = os.getpid() if pid is None else pid
        self._base = f"/api/v1/attempts/{attempt}"
        self._changed = threading.Condition()
        self._document: dict[str, Any] | None = None
        self._deadlines: dict[str, float] = {}  # device -> monotonic seconds
        self._acks: list[dict[str, Any]] = []  # oldest first
        self._status: dict[str, Any] | None = None  # the newest report, if not sent yet
        self._ahead_ms = 0  # how far our clock is ahead of the server's
        self._closing = False  # True: reports are sent at once
        self._over = threading.Event()
        self._linked = threading.Event()
        self._away = False  # the last try to link failed; False also while the first is under way
        self._threads: list[threading.Thread] = []
        self.trouble = ""  # why the server refuses our messages; empty: it does not, or was not reached yet

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Link":
        """The link of the task that this process belongs to. Raises NoTask."""
        attempt, folder = environ.get("PLIANT_ATTEMPT", ""), environ.get("PLIANT_ATTEMPT_DIR", "")
        if attempt.count("/") != 2 or not folder:
            raise NoTask(
                "This is no task of the scheduler: PLIANT_ATTEMPT and PLIANT_ATTEMPT_DIR are not set.",
                "Submit the script, or run it here with `python -m pliant.train run`.",
            )
        path = environ.get("PLIANT_TOKEN_FILE", "")
        try:
            token = Path(path).read_text("utf-8").strip() if path else ""
        except OSError as error:
            token = ""
            _say(
                f"the token of this attempt cannot be read, its allocation comes from the file only: {error}"
            )
        file = environ.get("PLIANT_ALLOCATION_FILE", "")
        return cls(
            attempt,
            Path(folder),
            environ.get("PLIANT_URL", ""),
            token,
            file=Path(file) if file else None,
            shown=shown_devices(environ),
        )

    def start(self) -> None:
        """Read the allocation file and start the threads."""
        self._read_file()
        if self._url and self._token:
            for name, work in (("follow", self._follow), ("tell", self._tell)):
                thread = threading.Thread(target=work, name=f"pliant-link-{name}", daemon=True)
                thread.start()
                self._threads.append(thread)

    def close(self, patience_s: float = 2.0) -> None:
        """Send what is not sent yet, for at most `patience_s`, then end the threads."""
        until = time.monotonic() + patience_s
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            while self._hears() and (self._acks or self._status) and time.monotonic() < until:
                self._changed.wait(0.05)
            self._over.set()
            self._changed.notify_all()

    def _hears(self) -> bool:
        """True if the server may still take what is to be sent."""
        return bool(self._threads) and (self._linked.is_set() or not self._away)

    # -- AllocationSource ------------------------------------------------------------------------------

    def wait(self, after: int, timeout_s: float) -> Holding | None:
        """What the task holds, as soon as its version is above `after`; None after `timeout_s`."""
        until = time.monotonic() + timeout_s
        while True:
            self._read_file()
            with self._changed:
                held = self._holding()
                if held is not None and held.version > after:
                    return held
                left = until - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(min(left, LOOK_S))

    def ack(self, version: int, kind: Literal["drained", "joined"], devices: Sequence[str]) -> None:
        """Acknowledge a version; this only shortens the time that others wait for the devices."""
        gpus = [device for device in devices if device != ALONE]
        with self._changed:
            self._acks.append({"version": version, "kind": kind, "gpus": gpus})
            self._changed.notify_all()

    def progress(self, status: Mapping[str, Any]) -> None:
        """Report the master's `status` to the scheduler. A new report replaces one not sent yet."""
        report = report_of(status)
        if self._file is not None and not self._url:
            self._write(report)
        with self._changed:
            self._status = report
            self._changed.notify_all()

    def _write(self, report: Mapping[str, Any]) -> None:
        """Write the report to a file: a server that containers cannot reach fetches it."""
        fresh = self._folder / ".report.json"
        try:
            fresh.write_text(json.dumps(report), "utf-8")
            fresh.rename(self._folder / "report.json")
        except OSError as error:
            if not self.trouble:
                self.trouble = f"its report cannot be written: {error}"
                _say(self.trouble)

    # -- receiving -------------------------------------------------------------------------------------

    def _holding(self) -> Holding | None:
        if self._document is None:
            return None
        own = [
            entry
            for entry in self._document["tasks"]
            if entry["id"] == self.task and entry["attempt"] == self.number and entry["state"] != "pending"
        ]
        now = time.monotonic()
        called = self._called(sorted({gpu for entry in own for gpu in entry["gpus"]}))
        keeps = [called[gpu] for entry in own if entry["state"] == "active" for gpu in entry["gpus"]]
        goes = [gpu for entry in own if entry["state"] == "draining" for gpu in entry["gpus"]]
        if any(entry["state"] == "active" and not entry["gpus"] for entry in own) and not keeps and not goes:
            keeps = [ALONE]
        left = [(called[gpu], max(0, round((self._deadlines.get(gpu, now) - now) * 1000))) for gpu in goes]
        return Holding(self._document["version"], tuple(keeps), tuple(left))

    def _called(self, gpus: Sequence[str]) -> dict[str, str]:
        """The scheduler's names of the task's devices, in order -> their names where the task runs."""
        if self._file is None:
            return dict(zip(gpus, gpus, strict=True))
        by_place = [str(place) for place in range(len(gpus))]
        return dict(zip(gpus, self._shown if len(self._shown) == len(gpus) else by_place, strict=True))

    def _take(self, document: Any, now_ms: int) -> None:
        """Take a document; `now_ms` is the present by the clock of its deadlines."""
        if not isinstance(document, dict) or not isinstance(document.get("tasks"), list):
            return
        with self._changed:
            if self._document is not None and document["version"] <= self._document["version"]:
                return
            mono = time.monotonic()
            for entry in document["tasks"]:
                if entry["id"] == self.task and entry["deadline"] is not None:
                    for gpu in entry["gpus"]:
                        self._deadlines[gpu] = mono + max(0, entry["deadline"] - now_ms) / 1000
            self._document = document
            self._changed.notify_all()

    def _read_file(self) -> None:
        try:
            text = (self._file or self._folder / "allocation.json").read_bytes()
            document = json.loads(text)
        except (OSError, ValueError):
            return  # replaced by rename: the next read finds it
        self._take(document, time.time_ns() // 1_000_000 - self._ahead_ms)

    def _follow(self) -> None:
        """Long-poll while the server answers; otherwise try again with growing pauses."""
        pause = AGAIN_S[0]
        transport = self._transport()
        while not self._over.is_set():
            try:
                if not self._linked.is_set():
                    self._register(transport)
                after = self._document["version"] if self._document is not None else -1
                answer = transport.call(
                    "GET",
                    f"{self._base}/allocation",
                    query=[("after", after)],
                    headers={"Prefer": f"wait={POLL_S:.0f}"},
                    repeatable=False,  # a broken connection may mean a new server: link again first
                )
                self._take(answer, int(answer["now"]))
                pause = AGAIN_S[0]
                if answer["version"] <= after:
                    self._over.wait(pause)  # time was up, or the server is about to end
                continue
            except NotFound:
                self._away = True
                self._over.wait(1.0)  # no allocation and none to come: this task is about to end
                continue
            except (Unauthorized, Conflict) as error:
                self._refused(error)
                pause = AGAIN_S[1]
            except PliantError:
                self._away = True
                self._linked.clear()  # it may come back as a new server process
            self._over.wait(pause)
            pause = min(2 * pause, AGAIN_S[1])
            transport.close()
            transport = self._transport()
        transport.close()

    def _register(self, transport: Transport) -> None:
        now = time.time_ns() // 1_000_000
        body = {"protocol": PROTOCOL, "pid": self._pid, "liveResize": True, "nowMs": now}
        answer = transport.call("POST", f"{self._base}/link", body=body)
        self._ahead_ms = int(answer["aheadMs"])
        if abs(self._ahead_ms) > CLOCKS_MS:
            _say(
                f"the clock here is {self._ahead_ms / 1000:+.0f} s from the server's: deadlines are taken as "
                "the time that is left, times in logs do not compare. Set the clocks, e.g. with chrony."
            )
        self.trouble = ""
        with self._changed:
            self._away = False
            self._linked.set()
            self._changed.notify_all()

    def _refused(self, error: PliantError) -> None:
        self._away = True
        text = f"{error.message} {error.details}".strip()
        if text != self.trouble:
            _say(f"the server takes nothing from this job, its allocation comes from the file only: {text}")
            self.trouble = text

    def _transport(self) -> Transport:
        """A connection to the server, whose port may differ after a restart."""
        state = self._folder.parents[3]
        record = server_record(str(state)) if (state / "attempts") == self._folder.parents[2] else None
        url = str(record["url"]) if record is not None else self._url
        return Transport(
            url, self._token, timeout=POLL_S + 10, authority=authority_of(url.rstrip("/"), str(state))
        )

    # -- sending ---------------------------------------------------------------------------------------

    def _due(self, quiet_until: float) -> bool:
        return self._closing or time.monotonic() >= quiet_until

    def _tell(self) -> None:
        quiet_until = 0.0
        transport: Transport | None = None
        while True:
            with self._changed:
                while not self._over.is_set() and (
                    not self._linked.is_set() or not (self._acks or (self._status and self._due(quiet_until)))
                ):
                    self._changed.wait(0.25)
                if self._over.is_set():
                    break
                ack = self._acks[0] if self._acks else None
                status = self._status if ack is None else None
            transport = transport or self._transport()
            try:
                if ack is not None:
                    transport.call("POST", f"{self._base}/acks", body=ack)
                elif status is not None:
                    answer = transport.call("POST", f"{self._base}/progress", body=status)
                    quiet_until = time.monotonic() + answer["nextMs"] / 1000
            except (Unauthorized, Conflict, NotFound) as error:
                self._refused(error)  # the server would refuse it later, too
            except PliantError:
                transport.close()
                transport = None
                self._over.wait(AGAIN_S[0])
                continue
            with self._changed:
                if ack is not None:
                    self._acks.remove(ack)
                elif self._status is status:
                    self._status = None
                self._changed.notify_all()
        if transport is not None:
            transport.close()


def report_of(status: Mapping[str, Any]) -> dict[str, Any]:
    """The master's `status` with the field names of the scheduler's API."""
    loss = status.get("loss")
    sizes = status.get("step_ms_by_size") or {}
    return {
        "state": str(status.get("state", "")),
        "step": int(status.get("step") or 0),
        "stepsTotal": int(status.get("steps_total") or 0),
        "epoch": int(status.get("epoch") or 0),
        "epochs": int(status.get("epochs") or 0),
        "records": int(status.get("records") or 0),
        "skipped": int(status.get("skipped") or 0),
        "world": int(status.get("world") or 0),
        "goodput": float(status.get("goodput_records_per_s") or 0),
        "loss": float(loss) if loss is not None and math.isfinite(loss) else None,
        "stepMsBySize": {str(size): float(ms) for size, ms in list(sizes.items())[:64]},
    }


def _say(text: str) -> None:
    sys.stderr.write(f"pliant.train: {text}\n")  # one write: the workers write to the same log
