"""Searches over many experiments, shared by tasks through one file: `init`, `pick`, `report`.

The file is <root>/<subdir>/runai.yaml, guarded by a lock beside it, so that any number of tasks pick at once.
An experiment whose task gets SIGTERM is picked again by the next one.
"""

import fcntl
import itertools
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

FORM = "%d/%m/%Y %H:%M:%S"


class Strategy(Enum):
    GridSearch = "grid"  # the first experiment that is not assigned
    RandomSearch = "random"  # a preempted one, else any that is not assigned


class Search:
    """One search of this process; `init` makes the one that the module's functions use."""

    def __init__(self, root: str | Path, subdir: str | None = None) -> None:
        self.folder = Path(root) / (subdir or "")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.experiment = 0  # number of the one that was picked; 0: none yet

    @contextmanager
    def _state(self) -> Iterator[dict[str, Any]]:
        """The state that all tasks share; changes are written back."""
        path = self.folder / "runai.yaml"
        with (self.folder / "runai.yaml.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            now = _now()
            known = yaml.safe_load(path.read_text()) if path.exists() else None
            state: dict[str, Any] = known or {"creationTime": now, "experiments": []}
            yield state
            fresh = path.with_suffix(".new")
            fresh.write_text(yaml.safe_dump(state, sort_keys=False))
            os.replace(fresh, path)

    def pick(self, grid: Mapping[str, Sequence[Any]], strategy: Strategy) -> dict[str, Any]:
        """The configuration to try. Raises AssertionError if every one is assigned."""
        with self._state() as state:
            if not state["experiments"]:
                configs = [
                    dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())
                ]
                state["experiments"] = [
                    {"id": number, "status": "unassigned", "config": config, "modificationTime": _now()}
                    for number, config in enumerate(configs, 1)
                ]
            free = [entry for entry in state["experiments"] if entry["status"] != "assigned"]
            assert free, "every experiment of the grid is taken"
            chosen = free[0]
            if strategy is Strategy.RandomSearch:
                broken = [entry for entry in free if entry["status"] == "preempted"]
                chosen = broken[0] if broken else random.choice(free)
            chosen |= {"status": "assigned", "modificationTime": _now()}
            self.experiment = chosen["id"]
        signal.signal(signal.SIGTERM, lambda number, frame: self.broken_off())
        print(f"Picked HPO experiment #{self.experiment}", flush=True)
        return dict(chosen["config"])

    def report(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Record the progress of the experiment."""

        def note(entry: dict[str, Any]) -> None:
            told = {"epoch": epoch, "metrics": dict(metrics), "reportTime": _now()}
            entry.setdefault("reports", []).append(told)

        self._change(note)

    def broken_off(self) -> None:
        """Mark the experiment as preempted, and exit."""

        def note(entry: dict[str, Any]) -> None:
            entry["status"] = "preempted"

        self._change(note)
        sys.exit(1)

    def _change(self, note: Callable[[dict[str, Any]], None]) -> None:
        assert self.experiment, "call pick first"
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # its handler needs the lock too
        try:
            with self._state() as state:
                [entry] = [entry for entry in state["experiments"] if entry["id"] == self.experiment]
                note(entry)
                entry["modificationTime"] = _now()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


_search: Search | None = None


def init(root: str | Path, subdir: str | None = None) -> None:
    """Share a search by the folder <root>/<subdir>."""
    global _search
    _search = Search(root, subdir)


def pick(grid: Mapping[str, Sequence[Any]], strategy: Strategy = Strategy.GridSearch) -> dict[str, Any]:
    """The configuration that this task should try."""
    return _present().pick(grid, strategy)


def report(epoch: int, metrics: Mapping[str, float]) -> None:
    """Record the progress of this task."""
    _present().report(epoch, metrics)


def _present() -> Search:
    assert _search is not None, "call runai.hpo.init first"
    return _search


def _now() -> str:
    return datetime.now(UTC).strftime(FORM)
