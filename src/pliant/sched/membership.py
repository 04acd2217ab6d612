"""Which workloads want, hold or lack something: sets that change only where a workload has changed."""

from typing import NamedTuple

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


class Alike(NamedTuple):
    """Wanting workloads of one kind, with their chunks."""

    kind: Kind
    chunks: dict[str, Chunk]


class Membership:
    def __init__(self) -> None:
        self.wanting: dict[str, None] = {}  # workloads that miss core or wanted portions
        self.broken: dict[str, None] = {}  # workloads that hold something, but not all of their core
        self.stretched: dict[str, None] = {}  # workloads that hold bonus portions
        self.elastic: dict[str, None] = {}  # workloads that could hold (more) bonus portions
        self.holders: dict[str, dict[str, None]] = {}  # project -> workloads with claims
        self.kinds: dict[Kind, dict[str, Chunk]] = {}  # wanting workloads with their chunks
        self._among: dict[str, Alike] = {}  # wanting workload -> those of its kind
        self._belongs: dict[str, int] = {}  # workload -> the sets it is in, as bits

    def note(self, wid: str, workload: Workload | None, need: Need | None) -> None:
        """Where a workload with this need belongs now; None: it is gone."""
        if workload is None or need is None:
            self._leave_kind(wid)
            self._move(wid, 0)
            self._belongs.pop(wid, None)
            return
        if need.chunk is None:
            self._leave_kind(wid)
        else:
            self._join_kind(wid, kind_of(workload, need, need.chunk), need.chunk)
        now = (
            (need.chunk is not None)
            | (need.broken and workload_open(workload)) << 1
            | (need.bonus > 0) << 2
            | need.stretchable << 3
            | need.holds << HOLDS
        )
        changed = self._move(wid, now)
        if changed:
            self._belongs[wid] = now
            if changed >> HOLDS:
                _include(self.holders.setdefault(workload.project, {}), wid, now >> HOLDS)

    def _move(self, wid: str, now: int) -> int:
        """Put a workload into just these of the four sets; the bits that have changed, `holders` included."""
        changed = now ^ self._belongs.get(wid, 0)
        if changed & 1:
            _include(self.wanting, wid, now & 1)
        if changed & 0b1110:  # seldom
            for at, group in enumerate((self.broken, self.stretched, self.elastic), 1):
                if changed >> at & 1:
                    _include(group, wid, now >> at & 1)
        return changed

    def _join_kind(self, wid: str, kind: Kind, chunk: Chunk) -> None:
        among = self._among.get(wid)
        if among is None or among.kind != kind:
            self._leave_kind(wid)
            among = self._among[wid] = Alike(kind, self.kinds.setdefault(kind, {}))
        among.chunks[wid] = chunk

    def _leave_kind(self, wid: str) -> None:
        among = self._among.pop(wid, None)
        if among is not None:
            del among.chunks[wid]
            if not among.chunks:
                del self.kinds[among.kind]

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
