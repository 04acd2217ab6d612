"""Which workloads want, hold or lack something: sets that change only where a workload has changed."""

from pliant.model.workload import Workload
from pliant.sched.portions import Chunk, Need, workload_open

HOLDS = 4
"""The bit for `holders` in Membership._belongs; those below it are for the other sets, in their order."""

Kind = tuple[object, ...]
"""All that tells a waiting workload from others but its age and its names."""


def kind_of(workload: Workload, need: Need, chunk: Chunk) -> Kind:
    """Where it has or had something it is of a kind of its own: who holds what decides where more may go."""
    if need.holds or need.failed or workload.preemption_delay:
        return (workload.id,)
    return (
        workload.project,
        workload.kind,
        workload.node_type,
        workload.pools,
        workload.preemptible,
        workload.max_runtime,
        chunk.shape,
        chunk.step,
        chunk.standing,
        chunk.priority,
        need.lacks,
        need.lacks_memory,
    )


class Membership:
    def __init__(self) -> None:
        self.wanting: dict[str, None] = {}  # workloads that miss core or wanted portions
        self.broken: dict[str, None] = {}  # workloads that hold something, but not all of their core
        self.stretched: dict[str, None] = {}  # workloads that hold bonus portions
        self.elastic: dict[str, None] = {}  # workloads that could hold (more) bonus portions
        self.holders: dict[str, dict[str, None]] = {}  # project -> workloads with claims
        self.kinds: dict[Kind, dict[str, Chunk]] = {}  # wanting workloads with their chunks
        self._kind: dict[str, Kind] = {}  # of each of those
        self._belongs: dict[str, int] = {}  # workload -> the sets it is in, as bits

    def note(self, wid: str, workload: Workload | None, need: Need | None) -> None:
        """Where a workload with this need belongs now; None: it is gone."""
        if wid in self._kind or (need is not None and need.chunk is not None):
            self._note_kind(wid, workload, need)
        now = 0
        if workload is not None and need is not None:
            now = (
                (need.chunk is not None)
                | (need.broken and workload_open(workload)) << 1
                | (need.bonus > 0) << 2
                | need.stretchable << 3
                | need.holds << HOLDS
            )
        changed = now ^ self._belongs.get(wid, 0)
        if changed & ~(1 << HOLDS):
            for at, group in enumerate((self.wanting, self.broken, self.stretched, self.elastic)):
                if changed >> at & 1:
                    _include(group, wid, now >> at & 1)
        if workload is None:
            self._belongs.pop(wid, None)
        elif changed:
            self._belongs[wid] = now
            if changed >> HOLDS:
                _include(self.holders.setdefault(workload.project, {}), wid, now >> HOLDS)

    def _note_kind(self, wid: str, workload: Workload | None, need: Need | None) -> None:
        chunk = need.chunk if need is not None else None
        now = kind_of(workload, need, chunk) if workload and need and chunk else None
        before = self._kind.get(wid)
        if before is not None and before != now:
            del self._kind[wid], self.kinds[before][wid]
            if not self.kinds[before]:
                del self.kinds[before]
        if now is not None and chunk is not None:
            self._kind[wid] = now
            self.kinds.setdefault(now, {})[wid] = chunk

    def let_go(self, workload: Workload) -> None:
        """It is no longer one of its project's."""
        self.holders.get(workload.project, {}).pop(workload.id, None)
        if workload.id in self._belongs:
            self._belongs[workload.id] &= ~(1 << HOLDS)


def _include(group: dict[str, None], wid: str, belongs: int) -> None:
    if belongs:
        group[wid] = None
    else:
        group.pop(wid, None)
