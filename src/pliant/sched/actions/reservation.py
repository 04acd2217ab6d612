"""Reservation: keeps what becomes free for a large waiting gang; others may use it only until it starts."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pliant.model.machine import Placement, Share
from pliant.model.quantity import Resources
from pliant.model.reason.held import Reserved
from pliant.model.workload import TaskKey, TaskPhase, Workload
from pliant.sched.placement import fit
from pliant.sched.placement.eligibility import Destinations
from pliant.sched.shares.admission import Refusal
from pliant.sched.shares.entitlement import Entitlement
from pliant.sched.shares.naming import workload_named
from pliant.sched.world.chunks import Chunk, Step
from pliant.sched.world.node_classes import NodeClass
from pliant.sched.world.queue_tree import NOTHING


@dataclass(frozen=True, slots=True)
class Reservation:
    """Where a gang is to start, and when."""

    chunk: Chunk
    pool: str
    places: tuple[Placement, ...]  # of its tasks; some of it is still used by others
    begins: int | None  # ms; None: some workload in the way has no known end
    gpus: int  # milli-GPUs that it asks for


class Reserving:
    """At most one reservation in each pool, recreated in each cycle. Off if Settings.reservation is 0."""

    def __init__(
        self, places: Destinations, shares: Entitlement, now: int, positions: Callable[[], Mapping[str, int]]
    ) -> None:
        """`positions`: see Cycle.positions()."""
        self._places_of = places
        self._world = places.world
        self._shares = shares
        self._now = now
        self._positions = positions
        self._made: dict[str, Reservation] = {}
        self._placeholders: dict[str, list[TaskKey]] = {}  # pool -> the tasks that claim for the gang

    def drop(self) -> None:
        """Drop all reservations: the order starts again."""
        for pool in list(self._made):
            self._lift(pool)
        self._made.clear()

    # ------------------------------------------------------------------ making
    def consider(self, chunk: Chunk, pool: str, adding: Resources, refusal: Refusal | None) -> None:
        """Reserve for a chunk that did not fit in its turn, if it is large and within its fair share."""
        most = self._places_of.settings.reservation
        if not most or pool in self._made or refusal is not None or chunk.step is not Step.CORE:
            return
        if adding.gpu < most or len(chunk.parts) < 2 or self._places_of.never_fits(chunk, pool):
            return
        if self._beyond(chunk, pool, adding, NOTHING):
            return
        found = self._foreseen(chunk, pool)
        if found is None:
            return
        places, ended = found
        own = [wid for _, wid in ended if self._belongs(wid, chunk.workload.project)]
        held = self._world.claimed(chunk.workload.project, pool)
        for wid in own:
            for claim in map(self._world.claim_of, self._world.keys_of(wid)):
                held = held.minus(claim.resources) if claim is not None else held
        if not self._beyond(chunk, pool, adding, held):
            begins = ended[-1][0] if ended else self._now
            self._made[pool] = Reservation(chunk, pool, places, begins, adding.gpu)
            self._hold(pool)

    def _beyond(self, chunk: Chunk, pool: str, adding: Resources, held: Resources) -> bool:
        """True if its project, which holds `held`, would exceed its fair share: then nothing is reserved."""
        fair = self._shares.standing(pool)[chunk.workload.project].fair
        return any(asked and had + asked > due for had, asked, due in zip(held, adding, fair, strict=True))

    def _belongs(self, wid: str, project: str) -> bool:
        workload = self._world.workloads.get(wid)
        return workload is not None and workload.project == project

    def _foreseen(
        self, chunk: Chunk, pool: str
    ) -> tuple[tuple[Placement, ...], list[tuple[int | None, str]]] | None:
        """Where it fits once as few workloads as possible have ended, and which; None if it never fits."""
        events = self._ends(chunk, self._places_of.nodes_for(chunk.workload, pool))
        least, most = 0, 1
        while most < len(events) and self._places(chunk, pool, events[:most]) is None:
            least, most = most, most * 2
        most = min(most, len(events))
        found = self._places(chunk, pool, events[:most])
        if found is None:
            return None
        while least + 1 < most:
            middle = (least + most) // 2
            places = self._places(chunk, pool, events[:middle])
            if places is None:
                least = middle
            else:
                most, found = middle, places
        return found, events[:most]

    def _ends(self, chunk: Chunk, cls: NodeClass) -> list[tuple[int | None, str]]:
        """(end in ms, workload), the first to end first; then those without a known end, by emptier nodes."""
        known: dict[str, int | None] = {}
        for node in sorted(cls.nodes.values(), key=lambda node: (node.usable - node.free, node.row.name)):
            for key in sorted(node.tasks):
                if (
                    key[0] not in known
                    and key[0] != chunk.workload.id
                    and self._world.claim_of(key) is not None
                ):
                    workload = self._world.workloads.get(key[0])
                    known[key[0]] = self.ends(workload) if workload is not None else None
        said = sorted((end, wid) for wid, end in known.items() if end is not None)
        return [*said, *((None, wid) for wid, end in known.items() if end is None)]

    def ends(self, workload: Workload) -> int | None:
        """When (ms) its maximum runtime is over; None if it has none or exceeded it."""
        now = self._now
        if workload.max_runtime is None:
            return None
        begun = [row.started for row in self._world.tasks_of(workload.id) if row.phase is TaskPhase.RUNNING]
        end = max((at for at in begun if at is not None), default=now) + workload.max_runtime
        return end if end > now else None

    def _places(
        self, chunk: Chunk, pool: str, events: list[tuple[int | None, str]]
    ) -> tuple[Placement, ...] | None:
        """Its places without these workloads; None if there are none. The world is left as it is."""
        world, mark = self._world, self._world.checkpoint()
        for _, wid in events:
            for key in world.keys_of(wid):
                if world.claim_of(key) is not None:
                    world.claim(key, None)
        placed = fit.place(
            world, self._places_of.nodes_for(chunk.workload, pool), chunk, self._places_of.pool(pool)
        )
        claims = [world.claim_of(part.task) for part in chunk.parts] if placed else []
        world.undo(mark)
        return tuple(claim for claim in claims if claim is not None) if placed else None

    # ------------------------------------------------------------------ keeping
    def _hold(self, pool: str) -> None:
        """Claim what is free now of its places."""
        for place in self._made[pool].places:
            node = self._world.nodes[place.node]
            shares: list[Share] = []
            for share in place.shares:
                device = node.devices.get(share.gpu)
                if device is not None and device.room(share):
                    shares.append(share)
            cpu, memory = min(place.cpu, max(0, node.free_cpu)), min(place.memory, max(0, node.free_memory))
            kept = replace(place, shares=tuple(shares), cpu=cpu, memory=memory)
            if shares or cpu or memory:
                self._placeholders.setdefault(pool, []).append(self._world.keep_free(kept))

    def _lift(self, pool: str) -> None:
        for key in self._placeholders.pop(pool, ()):
            self._world.claim(key, None)

    @contextmanager
    def seen_by(self, chunk: Chunk, pool: str) -> Iterator[None]:
        """Within this context what is kept is free, for the gang and for those before it in the order."""
        made = self._made.get(pool)
        wid, turns = chunk.workload.id, self._positions() if made is not None else {}
        last = len(turns) + 1
        if made is None or turns.get(wid, last) > turns.get(made.chunk.workload.id, last):
            yield
            return
        self._lift(pool)
        yield
        if self._world.asks(made.chunk):
            self._hold(pool)
        else:
            del self._made[pool]

    def backfilled(self, chunk: Chunk, pool: str, adding: Resources) -> bool:
        """Place a chunk on what is kept, if its maximum runtime is over when the gang begins."""
        made = self._made.get(pool)
        end = self._end_of(chunk)
        if made is None or made.begins is None or end is None or end > made.begins:
            return False
        self._lift(pool)
        placed = self._fits(chunk, pool, adding)
        self._hold(pool)
        return placed

    def _end_of(self, chunk: Chunk) -> int | None:
        """When (ms) what the chunk takes is free again at the latest; None if that is not known."""
        if chunk.step is Step.CORE:
            most = chunk.workload.max_runtime
            return None if most is None else self._now + most
        return self.ends(chunk.workload)

    def _fits(self, chunk: Chunk, pool: str, adding: Resources) -> bool:
        mark, shares = self._world.checkpoint(), self._shares
        if shares.refuse(chunk, pool, adding) is not None:
            return False
        cls, node_pool = self._places_of.nodes_for(chunk.workload, pool), self._places_of.pool(pool)
        if fit.place(self._world, cls, chunk, node_pool) and not shares.exceeded(chunk, pool, adding):
            return True
        self._world.undo(mark)
        return False

    def lift_all(self) -> None:
        """Release what is kept, at the end of the cycle; the reservations stay known for why()."""
        for pool in list(self._placeholders):
            self._lift(pool)

    # ------------------------------------------------------------------ telling
    def why(self, chunk: Chunk, pool: str, adding: Resources) -> Reserved | None:
        """The reservation that alone keeps a chunk from a place, or None. Only after lift_all()."""
        made = self._made.get(pool)
        if made is None or chunk.workload.id == made.chunk.workload.id:
            return None
        mark = self._world.checkpoint()
        fits = self._fits(chunk, pool, adding)
        self._world.undo(mark)
        if not fits:
            return None
        gang = workload_named(self._world, made.chunk.workload.id)
        return Reserved(adding.gpu, gang, made.gpus, made.begins, chunk.workload.max_runtime)
