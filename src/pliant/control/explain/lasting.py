"""Estimates how long work runs: as its owner declared, or as similar work ran before."""

from collections.abc import Iterable

from pliant.model.workload import Phase, Workload
from pliant.sched.explain.eta_model import Known, Lasting
from pliant.sched.world.state import World

FEW = 3
"""With fewer past runs there is no estimate."""


class PastRuns:
    """Run times of completed workloads by similarity: same owner and name without number, project, kind."""

    def __init__(self, ended: Iterable[Workload]) -> None:
        self._runs: dict[tuple[str, ...], list[int]] = {}
        seen: set[str] = set()
        for row in ended:
            if row.phase is not Phase.COMPLETED or row.id in seen or row.running_ms <= 0:
                continue
            seen.add(row.id)
            for key in likeness(row):
                self._runs.setdefault(key, []).append(row.running_ms)
        for runs in self._runs.values():
            runs.sort()

    def lasting(self, row: Workload) -> Lasting | None:
        """A quarter of similar runs took at most `short`, nine of ten at most `long`; None: too few runs."""
        for key in likeness(row):
            runs = self._runs.get(key, [])
            if len(runs) >= FEW:
                return Lasting(runs[len(runs) // 4], runs[(len(runs) * 9 - 1) // 10], "past")
        return None


def likeness(row: Workload) -> tuple[tuple[str, ...], ...]:
    """The keys of similar workloads, from the closest to the widest."""
    kind = row.kind.value
    stem = row.name.rstrip("0123456789abcdef").rstrip("-") or row.name
    return (kind, row.project, row.user, stem), (kind, row.project), (kind,)


def known_for(world: World, past: PastRuns) -> Known:
    """The run time of each workload of a world: the declared maximum less what it ran, else by past runs."""

    def known(wid: str) -> Lasting | None:
        row = world.workloads[wid]
        if row.max_runtime is not None:
            rest = max(0, row.max_runtime - row.running_ms)
            return Lasting(rest, rest, "declared")
        return past.lasting(row)

    return known
