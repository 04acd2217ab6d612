"""Everything the scheduler knows at one instant: rows as stored, claims with a journal, indexes over both.

Facts change it through put() and drop(); decide() changes only claims, through the journal, and undoes them.
Derived values are kept incrementally and equal those of a world built fresh from the same rows: snapshot().
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import filterfalse
from typing import Any

from pliant.model.machine import DEFAULT_POOL, Node, NodePool
from pliant.model.reason import Reason, hold_of
from pliant.model.tenancy import Department, Project
from pliant.model.workload import Task, TaskKey, Workload
from pliant.sched.world.chunks import NOTHING_MORE, SERVED, Chunk, Need, rigid, workload_open
from pliant.sched.world.claims import Claims
from pliant.sched.world.membership import Membership, belongs_to
from pliant.sched.world.node_affinity import demands_of, puts_off
from pliant.sched.world.node_classes import PLAIN, Domain, NodeClass, Spec, spec_of
from pliant.sched.world.nodes import NodeState
from pliant.sched.world.portions import need_of
from pliant.sched.world.queue_tree import NOTHING, below
from pliant.sched.world.rows import WORLD_ROWS, Row
from pliant.sched.world.sanity import flaw, overfull


class World(Claims):
    def __init__(self) -> None:
        super().__init__()
        self._classes: dict[tuple[object, ...], NodeClass] = {}
        self.places: dict[tuple[str, ...], dict[str, tuple[str, ...]]] = {}  # see topology.paths
        self.likings: dict[object, tuple[int, ...]] = {}  # see eligibility.best_first
        self.shunned: dict[str, None] = {}  # nodes with a taint that puts off
        self._slots: dict[str, dict[Any, Any]] = {  # the mapping of each kind of rows
            kind.slot: getattr(self, kind.slot, {}) for kind in WORLD_ROWS.kinds
        }
        self.suspects: dict[str, None] = {}  # nodes on which a claim may have become void
        self.ending: dict[str, None] = {}  # workloads that should not run (any more)
        self._facts_changed = False  # since the sets were brought up to date
        self._current = 0  # length of the journal when the sets were brought up to date
        self._bits_at = -1  # version of the world for which `_bits` holds
        self._bits: list[tuple[str, int]] = []  # touched workloads with the sets they would belong to
        self._sets = sets = Membership()
        self.wanting, self.broken, self.stretched = sets.wanting, sets.broken, sets.stretched
        self.elastic, self.holders, self.alike = sets.elastic, sets.holders, sets.alike
        self.rows_alike, self.ids_of, self.lowest_priority = sets.rows, sets.ids_of, sets.lowest_priority
        self.flaws: dict[str, Reason] = {}  # why nothing is decided about a workload: it is held, or a flaw
        self.adrift: dict[TaskKey, None] = {}  # tasks whose claims are not what they carry
        self._of_project: dict[str, dict[str, None]] = {}

    # ------------------------------------------------------------------ reading
    def need(self, workload: str) -> Need:
        """What a workload lacks and could have, as of now."""
        need = self._needs.get(workload)
        if need is None:
            row, keys = self.workloads[workload], self._members.get(workload, ())
            if len(keys) == 1 and keys[0] in self._claims and rigid(row) and not row.background:
                need = SERVED  # as in need_of(): most running work
            elif workload not in self.flaws:
                need = need_of(self, row)
            else:
                need = SERVED if any(map(self.claim_of, keys)) else NOTHING_MORE
            self._needs[workload] = need
        return need

    def asks(self, chunk: Chunk) -> bool:
        """True if this is still what its workload asks for next."""
        now = self.need(chunk.workload.id).chunk
        return now is chunk or now == chunk

    @property
    def strays(self) -> list[TaskKey]:
        """Tasks that claim or carry something unknown, sorted."""
        return sorted(self._strays)

    def node_class(self, pool: str, types: tuple[str, ...], spec: Spec = PLAIN) -> NodeClass:
        """The open nodes of a pool, of these types (empty: all), that meet a spec."""
        cls = self._classes.get((pool, types, spec))
        if cls is None:
            cls = Domain(pool, types, spec) if spec != PLAIN else NodeClass(pool, types)
            self._classes[pool, types, spec] = cls
            cls.fill([self.nodes[name] for name in sorted(self.nodes)])
        return cls

    def narrowed(self, cls: NodeClass, spec: Spec) -> NodeClass:
        """The class of the same pool and types with another spec."""
        return cls if spec == spec_of(cls) else self.node_class(cls.pool, cls.types, spec)

    # ------------------------------------------------------------------ rows
    def rows(self, without: Collection[type[Row]] = ()) -> Iterator[Row]:
        """All rows except some kinds, in an order in which the same world can be built from them."""
        for kind in WORLD_ROWS.kinds:
            if kind.row not in without:
                yield from map(_row_of, self._slots[kind.slot].values())

    def known(self, row: Row) -> Row | None:
        """The row of the same identity."""
        kind = WORLD_ROWS.of(row)
        held = self._slots[kind.slot]
        if not kind.held_by:
            found = held.get(kind.key(row))
            return None if found is None else _row_of(found)
        return next((it for it in held.values() if kind.key(it) == kind.key(row)), None)

    # ------------------------------------------------------------------ facts
    def put(self, row: Row) -> None:
        """Add a row or replace the one of the same identity. Only between cycles. Raises UnknownKind."""
        assert not self._journal, "the world changes only between cycles"
        self._facts_changed = True
        match row:
            case Task():
                self._put_task(row)
            case Workload():
                self._put_workload(row)
            case Node():
                self._put_node(row.name, row)
            case Project() | Department():
                with self._recharged(
                    [row.id] if isinstance(row, Project) else below(self.projects, self.departments, row.id)
                ):
                    self._slots[WORLD_ROWS.of(row).slot][row.id] = row
            case NodePool():
                if isinstance(known := self.known(row), NodePool) and known.name != row.name:
                    del self.pools[known.name]
                self.pools[row.name] = row
                self._repool()
            case _:  # nothing is derived from it
                self._slots[(kind := WORLD_ROWS.of(row)).slot][kind.key(row)] = row

    def drop(self, row: Row) -> None:
        """Remove a row, if it is there. Only between cycles. Raises UnknownKind."""
        assert not self._journal, "the world changes only between cycles"
        self._facts_changed = True
        kind = WORLD_ROWS.of(row)
        match row:
            case Task():
                self._drop_task(row.key)
            case Workload():
                self._drop_workload(row.id)
            case Node():
                self._put_node(row.name, None)
            case Project() | Department():
                with self._recharged(
                    [row.id] if isinstance(row, Project) else below(self.projects, self.departments, row.id)
                ):
                    self._slots[kind.slot].pop(row.id, None)
            case NodePool():
                if isinstance(known := self.known(row), NodePool):
                    del self.pools[known.name]
                self.pools.setdefault(DEFAULT_POOL, NodePool(DEFAULT_POOL, DEFAULT_POOL))
                self._repool()
            case _:
                self._slots[kind.slot].pop(kind.key(row), None)

    def _put_task(self, row: Task) -> None:
        key = (row.workload, row.name)
        known, members = self.tasks.get(key), self._members.setdefault(row.workload, [])
        if known is not None:
            self._hold(key, known.carries, -1)
        else:
            members.append(key)
        self.tasks[key] = row
        self._assign(key, row.claims)
        if len(members) > 1 and (known is None or known.index != row.index):
            self._sort_members(row.workload, key if known is None else None)
        self._hold(key, row.carries, 1)
        if row.workload in self._semi and (workload := self.workloads.get(row.workload)) is not None:
            self._guarantee(workload)  # a task that succeeded needs no claim for the core any more
        if row.claims is row.carries or row.claims == row.carries:
            self.adrift.pop(key, None)
        else:
            self.adrift[key] = None

    def _drop_task(self, key: TaskKey) -> None:
        known = self.tasks.get(key)
        if known is None:
            return
        self._hold(key, known.carries, -1)
        self._claims.pop(key, None)
        self._strays.pop(key, None)
        self.adrift.pop(key, None)
        del self.tasks[key]
        self._members[key[0]].remove(key)
        if not self._members[key[0]]:
            del self._members[key[0]]
        self._touch(key[0])

    def _put_workload(self, row: Workload) -> None:
        known = self.workloads.get(row.id)
        if known is not None:
            self._charge_workload(row.id, -1)
        if known is not None and known.project != row.project:
            self._of_project[known.project].pop(row.id)
            self._sets.let_go(known)
        self.workloads[row.id] = row
        self.asked.note(known, row)
        self._of_project.setdefault(row.project, {})[row.id] = None
        if row.id in self._members:
            self._charge_workload(row.id, 1)
        if known is None or _rules(known) != _rules(row):
            self._sort_members(row.id)
            self.flaws.pop(row.id, None)
            if found := hold_of(row) if row.held else flaw(row):
                self.flaws[row.id] = found
        if demands := demands_of(row):
            self._demands[row.id] = demands
        else:
            self._demands.pop(row.id, None)
        if workload_open(row):
            self.ending.pop(row.id, None)
        else:
            self.ending[row.id] = None
        self._touch(row.id)

    def _drop_workload(self, wid: str) -> None:
        known = self.workloads.get(wid)
        if known is None:
            return
        self._charge_workload(wid, -1)
        del self.workloads[wid]
        self.asked.note(known, None)
        self._demands.pop(wid, None)
        self.flaws.pop(wid, None)
        self._of_project[known.project].pop(wid)
        self._sets.let_go(known)
        self.ending.pop(wid, None)
        for pool in self._semi.pop(wid, {}):
            self._guaranteed.pop((wid, pool), None)
        self._touch(wid)

    def _put_node(self, name: str, row: Node | None) -> None:
        known = self.nodes.get(name)
        if known is not None and known.row == row and known.pool == self._pool_for(known.row):
            return
        keys = (
            sorted(known.tasks)
            if known is not None
            else sorted(k for k in self._strays if self._touches(k, name))
        )
        for key in keys:
            self._hold(key, self.tasks[key].carries, -1)
        if known is not None:
            for cls in list(known.classes):
                cls.remove(known)
            self._size(known, -1)
            for known_places in self.places.values():
                known_places.pop(name, None)
            del self.nodes[name]
            self.suspects.pop(name, None)
            self.shunned.pop(name, None)
        self.likings.clear()
        if row is not None:
            state = self.nodes[name] = NodeState(row, self._pool_for(row))
            state.weigh(*self.rates)
            self.shunned.update({name: None} if puts_off(row) else {})
            for cls in self._classes.values():
                if cls.takes(state):
                    cls.add(state)
            self._size(state, 1)
            if state.suspect:
                self.suspects[name] = None
        for key in keys:
            self._hold(key, self.tasks[key].carries, 1)

    def _repool(self) -> None:
        for name in sorted(self.nodes):
            self._put_node(name, self.nodes[name].row)

    def _pool_for(self, row: Node) -> str:
        """The lowest name among the pools whose label it carries."""
        for name in sorted(self.pools):
            pool = self.pools[name]
            if pool.label_key and row.label(pool.label_key) == pool.label_value:
                return name
        return DEFAULT_POOL

    # ------------------------------------------------------------------ indexes
    def update_sets(self) -> None:
        """Bring the sets of wanting, stretched, elastic and holding workloads up to date."""
        workloads, sets = self.workloads, self._sets
        for wid in self._touched:
            workload = workloads.get(wid)
            sets.note(wid, workload, self.need(wid) if workload is not None else None)
        self._touched.clear()
        self._bits_at, self._facts_changed = -1, False
        self._current = len(self._journal)
        self._weigh()

    def now_in(self, bit: int) -> list[str]:
        """Workloads of one of the sets as of now, hypotheses included; the sets stay as they are."""
        touched = self._touched
        if self._bits_at != self.version:
            rows = [(wid, row) for wid in touched if (row := self.workloads.get(wid)) is not None]
            self._bits = [(w, belongs_to(row, it)) for w, row in rows if (it := self.need(w)) is not SERVED]
            self._bits_at = self.version
        found = list(filterfalse(touched.__contains__, self._sets.known(bit)))
        return found + [wid for wid, bits in self._bits if bits & bit]

    def undo(self, mark: int) -> None:
        """Undo every claim() since the mark; the sets never reflect claims that were undone."""
        if mark and mark == len(self._journal):
            return
        super().undo(mark)
        if mark < self._current:
            self.update_sets()
        elif not (self._journal or self._facts_changed):
            self._touched.clear()  # all is as it was when the sets were brought up to date

    @contextmanager
    def _recharged(self, projects: list[str]) -> Iterator[None]:
        """Within this context the queue tree above these projects may change; their sums move along."""
        workloads = [wid for project in projects for wid in self._of_project.get(project, ())]
        for wid in workloads:
            self._charge_workload(wid, -1)
        yield
        self._forget_tree()
        for wid in workloads:
            self._charge_workload(wid, 1)

    def _sort_members(self, wid: str, last: TaskKey | None = None) -> None:
        """Sort the tasks of a workload; with `last`, only that one, at the end, may be out of order."""
        members = self._members.get(wid)
        if members is None or len(members) < 2 or (workload := self.workloads.get(wid)) is None:
            return
        place = {group.name: at for at, group in enumerate(workload.groups)}

        def order(key: TaskKey) -> tuple[int, int, TaskKey]:
            row = self.tasks[key]
            return place.get(row.group, 0), row.index, key

        if last is None or order(members[-2]) > order(last):
            members.sort(key=order)

    def _touches(self, key: TaskKey, node: str) -> bool:
        return any(p is not None and p.node == node for p in (self._claims.get(key), self.tasks[key].carries))

    # ------------------------------------------------------------------ proof
    def snapshot(self) -> dict[str, object]:
        """Everything derived, comparable between worlds whatever the order in which their rows came."""
        self.update_sets()
        return {
            "nodes": {name: self.nodes[name].numbers() for name in sorted(self.nodes)},
            "capacity": {pool: size for pool, size in sorted(self.capacity.items()) if size != NOTHING},
            "usage": {key: it.sums() for key, it in sorted(self._tallies.items()) if any(it.sums())},
            "members": {wid: tuple(keys) for wid, keys in sorted(self._members.items())},
            **{name: sorted(getattr(self, name)) for name in ("wanting", "broken", "stretched", "elastic")},
            **{name: sorted(getattr(self, name)) for name in ("ending", "adrift", "strays", "suspects")},
            "asked": self.asked.sums(),
            "children": self.children(),
            "bound": (self.rates, self.reserves, {k: v for k, v in sorted(self.bound_use.items()) if v}),
            "alike": sorted(sorted(alike) for alike in self.alike.values()),
            "holders": {project: sorted(wids) for project, wids in sorted(self.holders.items()) if wids},
        }

    def fresh(self) -> "World":
        """Another world built from the same rows."""
        world = World()
        for kind in WORLD_ROWS.kinds:
            held = self._slots[kind.slot]
            for key in sorted(held):
                world.put(_row_of(held[key]))
        return world

    def check(self) -> None:
        """Assert every invariant; the message names the culprit. It scans: for tests and debugging."""
        for key, row in sorted(self.tasks.items()):
            where = f"task {key[1]} of workload {key[0]}"
            assert (row.carries is not None) == row.phase.live, (
                f"{where} is {row.phase} but carries {row.carries}"
            )
            assert row.claims is None or not row.phase.over, (
                f"{where} is {row.phase} and still claims {row.claims}"
            )
            if not self._journal:
                assert self._claims.get(key) == row.claims, f"{where}: a hypothesis was left behind"
        for name in sorted(self.nodes):
            culprits = ", ".join(sorted(f"{wid}/{task}" for wid, task in self.nodes[name].tasks))
            text = overfull(self.nodes[name])
            assert not text, f"{text} (by {culprits})"
        for (queue, pool), tally in sorted(self._tallies.items()):
            sums = tally.sums()
            assert min(sums) >= 0, f"queue {queue} uses less than nothing of pool {pool}: {sums}"
        if not self._journal:
            mine, fresh = self.snapshot(), self.fresh().snapshot()
            for part, value in mine.items():
                assert value == fresh[part], (
                    f"{part} differ from a world built fresh: {value} is not {fresh[part]}"
                )


def _rules(row: Workload) -> tuple[object, ...]:
    return row.groups, row.held, row.after, row.limited


def _row_of(held: Row | NodeState) -> Row:
    return held.row if isinstance(held, NodeState) else held
