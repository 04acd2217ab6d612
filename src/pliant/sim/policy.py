"""A policy file in TOML: changes a trace's settings, quotas, placement strategies and machines."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pliant.control.errors import BadRequest
from pliant.control.state.setting import changed, read
from pliant.control.usecases.changes import QuotaChange
from pliant.model.machine import DEFAULT_POOL, Gpu, Node, NodePool, Strategy
from pliant.model.quantity import parse_duration, parse_gpus
from pliant.model.tenancy import UNLIMITED, Department, Project
from pliant.sim.lines import TraceError
from pliant.sim.trace import Setup, Trace

MOST_NODES = 10_000

_AMOUNTS: dict[str, tuple[str, Callable[[str], int]]] = {
    "quota": ("gpu", parse_gpus),
    "limit": ("gpu_limit", parse_gpus),
    "weight": ("weight", parse_gpus),
    "rank": ("rank", int),
    "reclaim-min-runtime": ("reclaim_min_runtime", parse_duration),
    "preempt-min-runtime": ("preempt_min_runtime", parse_duration),
}
_STRATEGIES = {
    "strategy": "gpu_strategy",
    "cpu-strategy": "cpu_strategy",
    "device-strategy": "device_strategy",
}


@dataclass(frozen=True, slots=True)
class Policy:
    """The content of one policy file; by default no changes."""

    path: str = ""
    tables: Mapping[str, Any] | None = None

    def over(self, trace: Trace) -> Trace:
        """The trace with the policy's changes. Raises TraceError."""
        if self.tables is None:
            return trace
        known = ("settings", "projects", "departments", "pools", "nodes")
        for name in self.tables:
            self._known(name, known, "a policy")
        settings = trace.settings
        for name, value in self._table(self.tables, "settings").items():
            try:
                settings = changed(settings, read({name: str(value)}))
            except BadRequest as error:
                raise self._error(f"settings.{name}", str(error)) from None
        return replace(
            trace,
            setup=[*map(self._row, trace.setup), *self._more(trace)],
            changes=[replace(change, row=self._row(change.row)) for change in trace.changes],
            settings=settings,
        )

    def check_names(self, trace: Trace) -> None:
        """Raise TraceError for a project, department or pool that the trace does not have."""
        rows = [*trace.setup, *(change.row for change in trace.changes)]
        for name, kind in (("projects", Project), ("departments", Department), ("pools", NodePool)):
            there = {row.name for row in rows if isinstance(row, kind)}
            there |= {DEFAULT_POOL} if kind is NodePool else set()
            for each in self._table(self.tables or {}, name):
                self._known(each, sorted(there), f"the {name} of this trace", f"{name}.")

    def _row(self, row: Setup) -> Setup:
        match row:
            case Project() | Department():
                name = "projects" if isinstance(row, Project) else "departments"
                said = self._table(self._table(self.tables or {}, name), row.name)
                if not said:
                    return row
                quota = self._quota(f"{name}.{row.name}", said).over(row.quota(DEFAULT_POOL))
                others = [entry for entry in row.quotas if entry[0] != DEFAULT_POOL]
                return replace(row, quotas=tuple(sorted([*others, (DEFAULT_POOL, quota)])), derived=False)
            case NodePool():
                return replace(row, **self._strategies(row.name))
            case _:
                return row

    def _quota(self, where: str, said: Mapping[str, Any]) -> QuotaChange:
        values: dict[str, int] = {}
        for key, value in said.items():
            self._known(key, list(_AMOUNTS), where)
            field, parse = _AMOUNTS[key]
            unlimited = value in (-1, "unlimited")
            values[field] = UNLIMITED if unlimited else self._amount(f"{where}.{key}", parse, value)
        return QuotaChange(**values)

    def _amount(self, where: str, parse: Callable[[str], int], value: object) -> int:
        try:
            return parse(str(value))
        except ValueError as error:
            raise self._error(where, str(error)) from None

    def _strategies(self, pool: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in self._table(self._table(self.tables or {}, "pools"), pool).items():
            if key == "min-runtime":
                found["min_runtime"] = self._amount(f"pools.{pool}.{key}", parse_duration, value)
                continue
            self._known(key, [*_STRATEGIES, "min-runtime"], f"pools.{pool}")
            words = {"pack": Strategy.PACK, "binpack": Strategy.PACK, "spread": Strategy.SPREAD}
            if not isinstance(value, str) or value not in words:
                raise self._error(f"pools.{pool}.{key}", f"{value!r} is not pack or spread")
            found[_STRATEGIES[key]] = words[value]
        return found

    def _more(self, trace: Trace) -> list[Setup]:
        """The added nodes, copies of one of the trace; and the default pool if the trace has none."""
        rows: list[Setup] = []
        if not any(isinstance(row, NodePool) and row.name == DEFAULT_POOL for row in trace.setup):
            rows.append(replace(NodePool(DEFAULT_POOL, DEFAULT_POOL), **self._strategies(DEFAULT_POOL)))
        said = self._table(self.tables or {}, "nodes")
        for key in said:
            self._known(key, ("add", "like"), "nodes")
        count = said.get("add", 0)
        if not isinstance(count, int) or not 0 <= count <= MOST_NODES:
            raise self._error("nodes.add", f"{count!r} is not a number from 0 to {MOST_NODES}")
        nodes = [row for row in trace.setup if isinstance(row, Node)]
        nodes += [it.row for it in trace.changes if isinstance(it.row, Node)]
        like = said.get("like", nodes[0].name if nodes else "")
        self._known(like, [node.name for node in nodes], "the nodes of this trace", "nodes.like = ")
        model = next(node for node in nodes if node.name == like)
        for index in range(count):
            name = f"added-{index}"
            gpus = tuple(Gpu(f"{name}/{it.index}", it.index, it.memory, it.model) for it in model.gpus)
            rows.append(replace(model, name=name, gpus=gpus, ready=True, draining=False, taints=()))
        return rows

    # ------------------------------------------------------------------ complaints
    def _table(self, of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        found = of.get(name, {})
        if not isinstance(found, dict):
            raise self._error(name, "is not a table")
        return found

    def _known(self, name: object, known: Any, whose: str, prefix: str = "") -> None:
        if name not in known:
            near = get_close_matches(str(name), list(known), 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(list(known)[:20])}"
            raise self._error(f"{prefix}{name}", f"is not one of {whose}; {hint}")

    def _error(self, where: str, text: str) -> TraceError:
        name = where.rpartition(".")[2].rpartition(" ")[2]
        lines = Path(self.path).read_text("utf-8").splitlines()
        at = next((number for number, line in enumerate(lines, 1) if name in line), 1)
        return TraceError(f"{self.path}:{at}: {where}: {text}")


def read_policy(path: Path | None) -> Policy:
    """The policy of a file; None: no changes. Raises TraceError."""
    if path is None:
        return Policy()
    try:
        return Policy(str(path), tomllib.loads(path.read_text("utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise TraceError(f"{path}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: cannot be read: {error}") from None
