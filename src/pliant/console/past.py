"""Who held which GPU at a given time, from the rows of the record of cycles up to that time."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pliant.wire.record import Rows


@dataclass(slots=True)
class World:
    """The rows that the picture needs."""

    nodes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    projects: dict[str, str] = field(default_factory=dict)  # id -> name
    workloads: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    tasks: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)

    def put(self, kind: str, row: Mapping[str, Any], gone: bool) -> None:
        match kind:
            case "Node":
                _kept(self.nodes, row["name"], row, gone)
            case "Project":
                _kept(self.projects, row["id"], row["name"], gone)
            case "Workload":
                _kept(self.workloads, row["id"], row, gone)
            case "Task":
                _kept(self.tasks, (row["workload"], row["name"]), row, gone)

    def held(self) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
        """(GPU's UUID, milli-GPUs, workload) of every claim to a GPU."""
        for task in self.tasks.values():
            workload = self.workloads.get(task["workload"])
            for share in (task.get("claims") or {}).get("shares", ()):
                if workload is not None:
                    yield share["gpu"], share.get("portion", 1000), workload

    def by_project(self) -> dict[str, float]:
        """Project name -> GPUs that it had claims to."""
        found: dict[str, int] = {}
        for _, milli, workload in self.held():
            name = self.projects.get(workload["project"], workload["project"])
            found[name] = found.get(name, 0) + milli
        return {name: milli / 1000 for name, milli in sorted(found.items())}


def world_at(record: bytes, at: int) -> World:
    """The world at that time (ms). The record begins with a whole world before it."""
    world, rows = World(), Rows()
    for line in record.splitlines():
        entry = json.loads(line)
        if entry["now"] > at:
            break
        if "base" in entry:
            world = World()
        for kind, row, gone in rows.of(entry):
            world.put(kind, row, gone)
    return world


def _kept(rows: dict[Any, Any], key: Any, row: Any, gone: bool) -> None:
    if gone:
        rows.pop(key, None)
    else:
        rows[key] = row
