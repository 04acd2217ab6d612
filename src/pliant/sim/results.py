"""The output folder of a simulation: its results, or the state from which an interrupted run continues."""

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pliant.sim.lines import TraceError
from pliant.sim.page import page
from pliant.sim.simulation import Progress

UNFINISHED = "unfinished"
RESULT, PAGE = "result.json", "report.html"


class Results:
    """Writes each file whole or not at all, result.json last."""

    def __init__(self, folder: Path, inputs: dict[str, Any]) -> None:
        self.folder = folder
        self._key = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TraceError(f"{folder}: cannot be made: {error.strerror}") from None

    def interrupted(self) -> bytes | None:
        """The state that a run of the same inputs has kept, or None. Raises TraceError for another run's."""
        path = self.folder / UNFINISHED
        if not path.exists():
            return None
        try:
            key, _, rest = path.read_bytes().partition(b"\n")
        except OSError as error:
            raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
        digest, _, saved = rest.partition(b"\n")
        if digest.decode("ascii", "replace") != hashlib.sha256(saved).hexdigest():
            raise TraceError(f"{path}: this file is cut off or damaged; remove it, and the run begins again")
        if key.decode("ascii", "replace") != self._key:
            raise TraceError(
                f"{path}: an interrupted run with another trace, policy, seed or program is kept here; "
                "name another folder, or remove this file"
            )
        return saved

    def keep(self, saved: bytes) -> None:
        """Write the state after the run's key and a checksum, by which `interrupted` checks it."""
        self._write(UNFINISHED, f"{self._key}\n{hashlib.sha256(saved).hexdigest()}\n".encode() + saved)

    def finish(self, found: dict[str, Any], progress: Progress, facts: Sequence[tuple[str, str]]) -> None:
        heads = ("ms", "verb", "action", "workload", "tasks", "gpus_before", "gpus_after", "reason")
        decisions = ((at, *rest) for at, *rest in progress.decisions)
        jobs = (
            (name, it.project, it.gpus, it.submitted, it.started, it.ended)
            for name, it in progress.meter.jobs.items()
        )
        self._write("decisions.csv", _csv(heads, decisions))
        self._write(
            "jobs.csv", _csv(("job", "project", "milli_gpus", "submit_ms", "start_ms", "end_ms"), jobs)
        )
        samples = found["samples"]
        self._write("samples.csv", _csv(list(samples[0]) if samples else [], (it.values() for it in samples)))
        self._write(PAGE, page(found, facts).encode())
        self._write(RESULT, (json.dumps(found, indent=1) + "\n").encode())
        (self.folder / UNFINISHED).unlink(missing_ok=True)

    def _write(self, name: str, data: bytes) -> None:
        path = self.folder / f".{name}.part"
        try:
            with path.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            path.replace(self.folder / name)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise TraceError(f"{self.folder / name}: cannot be written: {error.strerror}") from None


def _csv(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return out.getvalue().encode()


def read_result(path: Path) -> dict[str, Any]:
    """The result in a folder of results, or in a result.json. Raises TraceError."""
    file = path / RESULT if path.is_dir() else path
    if path.is_dir() and not file.exists() and (path / UNFINISHED).exists():
        raise TraceError(f"{path}: this run was interrupted: to continue it, run it again with --out {path}")
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{file}: cannot be read: {error}") from None
    except ValueError as error:
        raise TraceError(f"{file}: no JSON: {error}") from None
    if not isinstance(found, dict) or not {"trace", "allocation", "waiting", "fairness"} <= found.keys():
        raise TraceError(f"{file}: this is no result of pliant sim run")
    return found


def first_difference(one: Path, other: Path) -> dict[str, Any] | None:
    """The first decision that differs; None if none differs or a decisions.csv is missing."""
    lists = []
    for path in (one, other):
        file = (path if path.is_dir() else path.parent) / "decisions.csv"
        if not file.exists():
            return None
        with file.open(newline="") as rows:
            lists.append(list(csv.DictReader(rows)))
    for at in range(max(map(len, lists))):
        mine, theirs = (rows[at] if at < len(rows) else None for rows in lists)
        if mine != theirs:
            return {"number": at + 1, "a": mine, "b": theirs}
    return None
