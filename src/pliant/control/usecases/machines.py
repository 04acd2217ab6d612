"""Use cases about machines: node pools, nodes with their labels and taints, topologies."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from pliant.control.board.view import Board
from pliant.control.errors import BadRequest, Conflict, NameTaken, NotFound
from pliant.control.loop import Loop
from pliant.control.state.draft import Draft
from pliant.control.state.marks import PREFIX, Marks, check_key, check_value
from pliant.control.submit.placing import check_apart, check_withins, within_of
from pliant.control.submit.submission import Submission, check_name
from pliant.model.affinity import HOST, Taint
from pliant.model.event import EventKind
from pliant.model.machine import DEFAULT_POOL, Node, NodePool
from pliant.model.tenancy import Department, Project
from pliant.model.topology import Topology, Within
from pliant.model.workload import Desired, Workload
from pliant.sched.placement.eligibility import all_pools


def check_origin(what: str, row: Project | Department | NodePool, origin: str | None) -> None:
    """Raise Conflict if an object on a cluster defines the row and the change does not come from there."""
    if row.origin and origin is None:
        raise Conflict(
            f"{what.capitalize()} {row.name} was applied with kubectl as {row.origin} and is changed there: "
            f"kubectl edit {row.origin}.",
            "Pliant does not change objects that it did not create.",
        )


class Machines:
    """The part of the service that is about nodes and their pools."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    @property
    def board(self) -> Board:
        return self._loop.board

    def _pool(self, key: str) -> NodePool:
        for pool in self._loop.world.pools.values():
            if key in (pool.id, pool.name):
                return pool
        raise NotFound(
            f"There is no node pool {key!r}.", "See the pools with: pliant nodepool list", field="nodePool"
        )

    def create_pool(
        self, name: str, change: Callable[[NodePool], NodePool], user: str, origin: str | None = None
    ) -> NodePool:
        """A pool of that name with what `change` sets on it."""

        def run(draft: Draft) -> NodePool:
            check_name(name, "node pool")
            world = self._loop.world
            if name in world.pools:
                raise NameTaken(
                    f"A node pool named {name!r} already exists.",
                    "Choose another name or update it.",
                    field="name",
                )
            numbers = [int(pool.id) for pool in world.pools.values() if pool.id.isdigit()]
            identity = str(1 + max(numbers, default=1))
            pool = replace(change(NodePool(identity, name)), id=identity, name=name, origin=origin or "")
            if not (pool.label_key and pool.label_value):
                raise BadRequest("A node pool needs the label of its nodes.", "Give --label KEY=VALUE.")
            check_key(pool.label_key, field="labelKey")
            check_value(pool.label_value, field="labelValue")
            self._check_pool(pool)
            draft.put(pool)
            draft.event(f"pool/{name}", EventKind.SUBMITTED, f"{user} created node pool {name}.", who=user)
            return pool

        return self._loop.call(run)

    def update_pool(
        self, key: str, change: Callable[[NodePool], NodePool], user: str, origin: str | None = None
    ) -> NodePool:
        def run(draft: Draft) -> NodePool:
            old = self._pool(key)
            check_origin("node pool", old, origin)
            pool = replace(change(old), id=old.id, name=old.name, origin=origin or "")
            if origin is not None and pool == old:
                return pool
            if old.name == DEFAULT_POOL and pool.label_key:
                raise Conflict("The pool 'default' takes every node of no other pool; it has no label.")
            self._check_pool(pool)
            draft.put(pool)
            draft.event(
                f"pool/{pool.name}", EventKind.UPDATED, f"{user} changed node pool {pool.name}.", who=user
            )
            return pool

        return self._loop.call(run)

    def delete_pool(self, key: str, user: str, origin: str | None = None) -> None:
        def run(draft: Draft) -> None:
            pool = self._pool(key)
            check_origin("node pool", pool, origin)
            if pool.name == DEFAULT_POOL:
                raise Conflict("The pool 'default' cannot be deleted.")
            users = sorted(
                row.name
                for row in self._loop.world.workloads.values()
                if pool.name in row.pools and row.desired is not Desired.DELETED
            )
            projects = sorted(
                row.name for row in self._loop.world.projects.values() if pool.name in row.default_pools
            )
            if projects:
                raise Conflict(
                    f"Pool {pool.name} is a default pool of {', '.join(projects[:5])}.",
                    "Give them other default pools first.",
                )
            if users:
                raise Conflict(
                    f"Workloads ask for pool {pool.name}: {', '.join(users[:5])}.", "Delete them first."
                )
            draft.drop(pool)
            world = self._loop.world
            queues: list[Project | Department] = [*world.projects.values(), *world.departments.values()]
            for queue in queues:
                left = tuple(quota for quota in queue.quotas if quota[0] != pool.name)
                if left != queue.quotas:  # a later pool of that name must not start with these quotas
                    draft.put(replace(queue, quotas=left))
            draft.event(
                f"pool/{pool.name}", EventKind.DELETED, f"{user} deleted node pool {pool.name}.", who=user
            )

        self._loop.call(run)

    def _check_pool(self, pool: NodePool) -> None:
        if pool.min_runtime < 0:
            raise BadRequest(
                "The minimum runtime cannot be negative.",
                "Give 0 or more, such as 2m.",
                field="minRuntimeSeconds",
            )
        label = (pool.label_key, pool.label_value)
        for other in self._loop.world.pools.values():
            if other.name not in (pool.name, DEFAULT_POOL) and (other.label_key, other.label_value) == label:
                raise Conflict(
                    f"Pool {other.name} has the nodes with {'='.join(label)} already.",
                    "Choose another label.",
                    field="labelValue",
                )
        if pool.topology:
            self._topology(pool.topology)

    # -- nodes --------------------------------------------------------------------------------------

    def cordon(self, name: str, draining: bool, user: str) -> None:
        """Stop a node from taking new work, or let it take work again."""

        def run(draft: Draft) -> None:
            draft.put(replace(self._node(name), draining=draining))
            word = "cordoned" if draining else "uncordoned"
            draft.event(f"node/{name}", EventKind.UPDATED, f"{user} {word} node {name}.", who=user)

        self._loop.call(run)

    def label(self, name: str, change: Mapping[str, str | None], user: str) -> Node:
        """Set labels of a node, or remove them with None, whatever its engine reports."""
        for key, value in change.items():
            check_key(key)
            check_value(value or "")
            if key == HOST:
                raise BadRequest(f"{HOST} is the name of the node and stays.", "Choose another label.")

        def run(draft: Draft) -> Node:
            marks = self._loop.state.marks.get(name, Marks())
            labels = tuple(sorted({**dict(marks.labels), **change}.items()))
            words = ", ".join(key if value is None else f"{key}={value}" for key, value in change.items())
            did = f"{user} set labels of {name}: {words}."
            return self._mark(draft, name, replace(marks, labels=labels), did, user)

        return self._loop.call(run)

    def taint(self, name: str, taints: Iterable[Taint], gone: Iterable[Taint], user: str) -> Node:
        """Add taints to a node and remove others, which are matched by key and effect."""
        put, taken = list(taints), {(taint.key, taint.effect) for taint in gone}
        for taint in put:
            check_key(taint.key, "taint")
            check_value(taint.value, "taint")

        def run(draft: Draft) -> Node:
            node, marks = self._node(name), self._loop.state.marks.get(name, Marks())
            missing = taken - {(taint.key, taint.effect) for taint in node.taints}
            if missing:
                key, effect = min(missing)
                raise NotFound(
                    f"Node {name} has no taint {key}:{effect.value}.",
                    f"See them with: pliant describe node {name}",
                )
            kept = {(taint.key, taint.effect): taint for taint in marks.taints}
            for taint in put:
                known = kept.get((taint.key, taint.effect))
                since = known.since if known is not None else draft.now
                kept[taint.key, taint.effect] = replace(taint, since=since)
            left = tuple(kept[key] for key in sorted(kept) if key not in taken)
            words = [f"{taint.key}={taint.value}:{taint.effect.value}" for taint in put]
            words += [f"no {key}:{effect.value}" for key, effect in sorted(taken)]
            did = f"{user} set taints of {name}: {', '.join(words)}."
            return self._mark(draft, name, replace(marks, taints=left), did, user)

        return self._loop.call(run)

    def _mark(self, draft: Draft, name: str, marks: Marks, did: str, user: str) -> Node:
        """Record new marks of a node; the node with them."""
        state = self._loop.state
        node, old = self._node(name), state.marks.get(name, Marks())
        reported = replace(node, taints=tuple(taint for taint in node.taints if taint not in old.taints))
        state.marks[name] = marks
        made = marks.over(reported)
        draft.put(made)
        draft.settings[PREFIX + name] = marks.text()
        draft.event(f"node/{name}", EventKind.UPDATED, did, who=user)
        return made

    def _node(self, name: str) -> Node:
        node = self._loop.state.node(name)
        if node is None:
            raise NotFound(f"There is no node {name!r}.", "See the nodes with: pliant node list")
        return node

    # -- topologies ---------------------------------------------------------------------------------

    def create_topology(self, name: str, levels: Sequence[str], user: str) -> Topology:
        def run(draft: Draft) -> Topology:
            check_name(name, "topology")
            if name in self._loop.world.topologies:
                raise NameTaken(
                    f"A topology named {name!r} already exists.",
                    "Choose another name or update it.",
                    field="name",
                )
            return self._put_topology(draft, name, levels, user, "created")

        return self._loop.call(run)

    def update_topology(self, name: str, levels: Sequence[str], user: str) -> Topology:
        def run(draft: Draft) -> Topology:
            self._topology(name)
            for workload in self._loop.world.workloads.values():
                for within in withins(workload):
                    lost = {within.required, within.preferred} - {"", *levels}
                    if within.topology == name and lost:
                        raise Conflict(
                            f"{workload.name} asks for level {min(lost)} of topology {name}.",
                            "Keep that level, or delete the workload first.",
                        )
            return self._put_topology(draft, name, levels, user, "changed")

        return self._loop.call(run)

    def delete_topology(self, name: str, user: str) -> None:
        def run(draft: Draft) -> None:
            row, world = self._topology(name), self._loop.world
            users = [
                workload.name
                for workload in world.workloads.values()
                if any(within.topology == name for within in withins(workload))
            ]
            pools = [pool.name for pool in world.pools.values() if pool.topology == name]
            for what, names in (("Workloads mean", users), ("Node pools have", pools)):
                if names:
                    raise Conflict(
                        f"{what} topology {name}: {', '.join(sorted(names)[:5])}.", "Change them first."
                    )
            draft.drop(row)
            draft.event(f"topology/{name}", EventKind.DELETED, f"{user} deleted topology {name}.", who=user)

        self._loop.call(run)

    def _nearness(
        self, project: Project, ask: Submission, workload: Workload
    ) -> tuple[Within | None, Topology | None]:
        """(how close all its tasks are placed, a topology to create for that)."""
        world = self._loop.world
        check_withins(withins(workload), world.topologies)
        names = ask.pools or project.default_pools or all_pools(world)
        own = [self._pool(name).topology for name in names]
        within, made = within_of(ask.placing, own, world.topologies, distributed=ask.distribution is not None)
        if within is not None:
            check_apart(workload, within, made or world.topologies[within.topology])
        return within, made

    def _put_topology(self, draft: Draft, name: str, levels: Sequence[str], user: str, did: str) -> Topology:
        if not levels:
            raise BadRequest("A topology needs levels.", "Name labels of nodes, the widest first.")
        for level in levels:
            check_key(level)
            if levels.count(level) > 1:
                raise BadRequest(f"Level {level} is named twice.", "Name each label once, the widest first.")
        row = Topology(name, tuple(levels))
        draft.put(row)
        kind = EventKind.SUBMITTED if did == "created" else EventKind.UPDATED
        words = f"{user} {did} topology {name}: {', '.join(levels)}."
        draft.event(f"topology/{name}", kind, words, who=user)
        return row

    def _topology(self, name: str) -> Topology:
        row = self._loop.world.topologies.get(name)
        if row is None:
            raise NotFound(f"There is no topology {name!r}.", "See them with: pliant topology list")
        return row


def withins(workload: Workload) -> Iterable[Within]:
    """All constraints of a workload on how close its tasks are placed."""
    own = [group.within for group in workload.groups]
    inner = [level.within for level in workload.subgroups]
    return [within for within in (workload.within, *inner, *own) if within is not None]
