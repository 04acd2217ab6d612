"""Sets of workloads that want, hold or lack something; updated only for workloads that changed."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence

from pliant.model.workload import Workload
from pliant.sched.world.chunks import (
    SERVED,
    Chunk,
    Need,
    Step,
    may_lose,
    priority_of,
    workload_open,
)

WANTING, BROKEN, STRETCHED, ELASTIC = 1, 2, 4, 8
HOLDS = 4
"""The bits of the sets in Membership._belongs; HOLDS is the position of the bit for `holders`."""

RequestKey = tuple[object, ...]
"""All that distinguishes a waiting workload from others, except age and names."""


def request_key(workload: Workload, need: Need, chunk: Chunk) -> RequestKey:
    """A workload that holds something, failed or has a preemption delay has a key of its own."""
    if need.holds or need.failed or workload.preemption_delay:
        return (workload.id,)
    return (
        workload.project,
        workload.kind,
        workload.node_type,
        workload.pools,
        workload.preemptible,
        workload.semi_preemptible,
        workload.max_runtime,
        chunk.shape,
        chunk.step,
        chunk.reached,
        chunk.priority,
        need.lacks,
        need.lacks_memory,
    )


MOVED = 64
"""After more changes than this, a row is sorted again as a whole."""

JobKey = tuple[object, ...]
"""The sort key of a chunk in its project: see job_key(). Its type names no elements, like those of other keys
and ranks: compiled code takes a tuple with named types apart and makes it again wherever it is kept.
"""


class Peers:
    """Wanting workloads of one key, with their chunks."""

    __slots__ = ("chunks", "ids", "key", "moved", "row")

    def __init__(self, key: RequestKey) -> None:
        self.key = key
        self.chunks: dict[str, Chunk] = {}
        self.row: Sequence[Chunk] | None = None  # the chunks in order, at the last ordered()
        self.moved: list[tuple[Chunk, bool]] = []  # since then: (chunk, True if it came)
        self.ids: list[str] = []  # of the workloads of the row, once they were asked for

    def note(self, chunk: Chunk, came: bool) -> None:
        """Note that a chunk came or goes."""
        if self.row is not None:
            self.moved.append((chunk, came))
            if len(self.moved) > MOVED:
                self.row = None

    def ordered(self, order: Callable[[Chunk], JobKey]) -> Sequence[Chunk]:
        """The chunks in order: the same list until one comes or goes."""
        if self.row is None:
            self.row, self.ids = sorted(self.chunks.values(), key=order), []
        elif self.moved:  # another list: the old one may still be iterated
            self.row, self.ids = _moved(self.row, self.moved, order), []
        self.moved = []
        return self.row


def belongs_to(workload: Workload, need: Need) -> int:
    """The sets that a workload with this need belongs to, as bits."""
    if need is SERVED:  # most running work
        return 1 << HOLDS
    now = need.holds << HOLDS
    if need.chunk is not None:
        now |= WANTING
    if need.broken and workload_open(workload):
        now |= BROKEN
    if need.bonus > 0:
        now |= STRETCHED
    if need.stretchable:
        now |= ELASTIC
    return now


class Membership:
    def __init__(self) -> None:
        self.wanting: dict[str, None] = {}  # workloads that miss core or wanted portions
        self.broken: dict[str, None] = {}  # workloads that hold something, but not all of their core
        self.stretched: dict[str, None] = {}  # workloads that hold bonus portions
        self.elastic: dict[str, None] = {}  # workloads that could hold (more) bonus portions
        self.holders: dict[str, dict[str, None]] = {}  # project -> workloads with claims
        self.alike: dict[RequestKey, dict[str, Chunk]] = {}  # wanting workloads with their chunks
        self._peers: dict[RequestKey, Peers] = {}  # the same with their order
        self._among: dict[str, Peers] = {}  # wanting workload -> the peers of its key
        self._belongs: dict[str, int] = {}  # workload -> the sets it is in, as bits
        self._lowest: dict[str, int | None] = {}  # project -> what lowest_priority() has answered

    def known(self, bit: int) -> dict[str, None]:
        """One of the four sets."""
        return {WANTING: self.wanting, BROKEN: self.broken, STRETCHED: self.stretched, ELASTIC: self.elastic}[
            bit
        ]

    def note(self, wid: str, workload: Workload | None, need: Need | None) -> None:
        """Update the sets for a workload with this need; None: it is gone."""
        if workload is None or need is None:
            self._leave_kind(wid)
            self._move(wid, self._belongs.pop(wid, 0), 0)
            return
        chunk = need.chunk
        if chunk is not None:
            among = self._among.get(wid)
            if among is not None and among.chunks.get(wid) is chunk:
                return  # a need has its own chunk: this one was noted before
            self._join_kind(wid, request_key(workload, need, chunk), chunk)
        elif wid in self._among:
            self._leave_kind(wid)
        self._lowest.pop(workload.project, None)
        now = belongs_to(workload, need)
        changed = now ^ self._belongs.get(wid, 0)
        if changed:
            self._belongs[wid] = now
            if changed & (WANTING | BROKEN | STRETCHED | ELASTIC):
                self._move(wid, changed, now)
            if changed >> HOLDS:
                _include(self.holders.setdefault(workload.project, {}), wid, now >> HOLDS)

    def _move(self, wid: str, changed: int, now: int) -> None:
        """Put a workload into the sets in `now` and take it out of the others; only of those in `changed`."""
        if changed & WANTING:
            _include(self.wanting, wid, now & WANTING)
        if changed & BROKEN:
            _include(self.broken, wid, now & BROKEN)
        if changed & STRETCHED:
            _include(self.stretched, wid, now & STRETCHED)
        if changed & ELASTIC:
            _include(self.elastic, wid, now & ELASTIC)

    def _join_kind(self, wid: str, key: RequestKey, chunk: Chunk) -> None:
        among = self._among.get(wid)
        if among is None or among.key != key:
            if among is not None:
                self._leave_kind(wid)
            among = self._peers.get(key)
            if among is None:
                among = self._peers[key] = Peers(key)
                self.alike[key] = among.chunks
            self._among[wid] = among
        known = among.chunks.get(wid)
        if known is not chunk:
            if known is not None:
                among.note(known, False)
            among.note(chunk, True)
            among.chunks[wid] = chunk

    def rows(self, order: Callable[[Chunk], JobKey]) -> Iterator[Sequence[Chunk]]:
        """The chunks of each key in order, the same each time until one of the key has changed."""
        for peers in self._peers.values():
            yield peers.ordered(order)

    def ids_of(self, row: Sequence[Chunk]) -> Sequence[str]:
        """The ids of the workloads of a row."""
        peers = self._among.get(row[0].workload.id)
        if peers is None or peers.row is not row:
            return [chunk.workload.id for chunk in row]
        if not peers.ids:
            peers.ids = [chunk.workload.id for chunk in row]
        return peers.ids

    def lowest_priority(self, project: str, workloads: Mapping[str, Workload]) -> int | None:
        """The lowest group priority of a project's workloads that hold something and may lose some of it."""
        if project not in self._lowest:
            rows = [workloads[wid] for wid in self.holders.get(project, ())]
            found = [
                priority_of(it, group) for it in rows if may_lose(it, Step.WANTED) for group in it.groups
            ]
            self._lowest[project] = min(found, default=None)
        return self._lowest[project]

    def _leave_kind(self, wid: str) -> None:
        among = self._among.pop(wid, None)
        if among is not None:
            among.note(among.chunks.pop(wid), False)
            if not among.chunks:
                del self._peers[among.key], self.alike[among.key]

    def let_go(self, workload: Workload) -> None:
        """Take a workload out of its project."""
        self.holders.get(workload.project, {}).pop(workload.id, None)
        self._lowest.pop(workload.project, None)
        if workload.id in self._belongs:
            self._belongs[workload.id] &= ~(1 << HOLDS)


def _moved(
    row: Sequence[Chunk], moved: Sequence[tuple[Chunk, bool]], order: Callable[[Chunk], JobKey]
) -> list[Chunk]:
    """A copy of the row with the changes made one after another; it stays in order."""
    found = list(row)
    for chunk, came in moved:
        at = bisect_left(found, order(chunk), key=order)
        if came:
            found.insert(at, chunk)
        else:
            assert found[at] is chunk, "a chunk has one place in its row"
            del found[at]
    return found


def _include(group: dict[str, None], wid: str, belongs: int) -> None:
    if belongs:
        group[wid] = None
    else:
        group.pop(wid, None)
