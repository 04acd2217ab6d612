"""How long work runs: as its owner declared, or as work like it ran before."""

from collections.abc import Iterable

from pliant.model.workload import Phase, Workload
from pliant.sched.explain.eta_model import Known, Lasting
from pliant.sched.world.state import World

FEW = 3
"""With fewer past runs nothing is said."""


class PastRuns:
    """Run times of workloads that completed, by likeness: owner and name without number, project, all."""

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
        """A quarter ran no longer than its `short`, nine of ten no longer than its `long`."""
        for key in likeness(row):
            runs = self._runs.get(key, [])
            if len(runs) >= FEW:
                return Lasting(runs[len(runs) // 4], runs[(len(runs) * 9 - 1) // 10], "past")
        return None


def likeness(row: Workload) -> tuple[tuple[str, ...], ...]:
    """From the closest to the widest."""
    kind = row.kind.value
    stem = row.name.rstrip("0123456789abcdef").rstrip("-") or row.name
    return (kind, row.project, row.user, stem), (kind, row.project), (kind,)


def known_for(world: World, past: PastRuns) -> Known:
    """What is known of each workload of a world: first what it says itself, less what it ran before."""

    def known(wid: str) -> Lasting | None:
        row = world.workloads[wid]
        if row.max_runtime is not None:
            rest = max(0, row.max_runtime - row.running_ms)
            return Lasting(rest, rest, "declared")
        return past.lasting(row)

    return known
