"""The job's ledger: an append-only log in SQLite on a local disk, and what is derived from it.

A step's records are a function of (seed, epoch, step), so the log names the steps that each generation
applied, not the records. `applied` cuts off steps that a later generation redid: those that are left made the
current weights.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pliant.train.errors import TrainError

VERSION = 1
NETWORK = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "afs",
        "ceph",
        "glusterfs",
        "fuse.glusterfs",
        "lustre",
        "gpfs",
    }
    | {"beegfs", "fuse.sshfs", "fuse.s3fs"}
)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS log (seq INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL,
                                kind TEXT NOT NULL, body TEXT NOT NULL);
CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON log
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON log
BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the log."""

    seq: int
    at_ms: int  # wall clock, for people only
    kind: str  # job | generation | progress | restored | queue | shard | quarantine | failed | finished
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Span:
    """The steps `first` to `last` that one generation applied and that count."""

    generation: int
    members: tuple[str, ...]
    first: int
    last: int  # first - 1 while it has applied none


def file_system(path: Path, mounts: str | None = None) -> str:
    """The type of the file system that holds `path`, by /proc/self/mountinfo or `mounts`; "" if unknown."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text("utf-8")
        except OSError:
            return ""
    found, longest = "", -1
    here = path.resolve()
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        point = Path(fields[4].encode().decode("unicode_escape"))
        if (point == here or point in here.parents) and len(point.parts) >= longest:
            found, longest = right.split()[0], len(point.parts)
    return found


class Ledger:
    """Opens or creates the log in `folder`. Every `append` is on disk when it returns. Raises TrainError."""

    def __init__(self, folder: Path, *, mounts: str | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        kind = file_system(folder, mounts)
        if kind in NETWORK:
            raise TrainError(
                f"The ledger cannot live in {folder}: that is {kind}, where locks and syncs do not hold. "
                "Choose a folder on a local disk with --dir or PLIANT_TRAIN_DIR."
            )
        self.path = folder / "ledger.db"
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None, timeout=5)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
            found = int(self._db.execute("PRAGMA user_version").fetchone()[0])
            if found == 0:
                self._db.execute(f"PRAGMA user_version={VERSION}")
        except sqlite3.DatabaseError as error:
            raise TrainError(
                f"{self.path} cannot be read as a ledger: {error}. Move it away; the job continues from "
                "what its workers know, or from the newest checkpoint."
            ) from error
        if found > VERSION:
            raise TrainError(
                f"{self.path} was written by a newer Pliant (layout {found}, this one knows {VERSION})."
            )

    def append(self, kind: str, body: dict[str, Any]) -> int:
        """Write one line and return its number."""
        line = (int(time.time() * 1000), kind, json.dumps(body))
        with self._lock:
            cursor = self._db.execute("INSERT INTO log (at_ms, kind, body) VALUES (?, ?, ?)", line)
            return int(cursor.lastrowid or 0)

    def events(self) -> list[Event]:
        """All events, oldest first."""
        with self._lock:
            rows = self._db.execute("SELECT seq, at_ms, kind, body FROM log ORDER BY seq").fetchall()
        return [Event(seq, at, kind, json.loads(body)) for seq, at, kind, body in rows]

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def applied(events: Iterable[Event]) -> list[Span]:
    """The steps that made the current weights, each once, oldest first."""
    spans: list[Span] = []
    for event in events:
        body = event.body
        if event.kind == "generation" and body["restore"]:  # its `restored` event gives the first step
            last = spans[-1].last if spans else 0
            spans.append(Span(body["generation"], tuple(body["members"]), last + 1, last))
        elif event.kind == "generation":
            spans = _extend(_cut(spans, body["step"]), body["step"])
            spans.append(Span(body["generation"], tuple(body["members"]), body["step"] + 1, body["step"]))
        elif event.kind == "restored" and spans:
            now = spans.pop()
            spans = _extend(_cut(spans, body["step"]), body["step"])  # the checkpoint proves these steps
            spans.append(Span(now.generation, now.members, body["step"] + 1, body["step"]))
        elif event.kind == "progress" and spans and body["generation"] == spans[-1].generation:
            spans = _extend(spans, body["step"])
    return [span for span in spans if span.last >= span.first]


def _cut(spans: list[Span], step: int) -> list[Span]:
    kept = [Span(s.generation, s.members, s.first, min(s.last, step)) for s in spans]
    return [span for span in kept if span.last >= span.first or span is kept[-1]]


def _extend(spans: list[Span], step: int) -> list[Span]:
    if spans and step > spans[-1].last:
        now = spans[-1]
        spans = [*spans[:-1], Span(now.generation, now.members, now.first, step)]
    return spans
