"""What was requested so far: cores and memory per GPU, shares, GPUs that only some node types can give."""

from collections.abc import Mapping
from typing import Final

from pliant.model.affinity import Operator
from pliant.model.machine import NODE_TYPE
from pliant.model.quantity import GPU
from pliant.model.workload import Desired, Workload

RUNNING: Final = Desired.RUNNING  # as in pliant.sched.world.chunks
LEADING_BITS = 3
"""Rates are rounded to these: they seldom change, so the order of nodes is seldom rebuilt."""

Rates = tuple[int, int]
"""(millicores, bytes) that tasks with GPUs ask for per GPU; 0: nothing."""


def node_types(workload: Workload) -> tuple[str, ...]:
    """The only node types that may run all of a workload, sorted; empty: the workload allows any."""
    if workload.node_type:
        return (workload.node_type,)
    if workload.affinity is None or not workload.affinity.required:
        return ()
    found: set[str] = set()
    for terms in workload.affinity.required:
        named = [term.values for term in terms if term.key == NODE_TYPE and term.operator is Operator.IN]
        if not named:
            return ()
        found.update(named[0])
    return tuple(sorted(found))


class Asked:
    """Sums over the workloads that should run, placed or waiting. They depend only on the rows."""

    def __init__(self) -> None:
        # Of tasks that ask for whole GPUs or portions; those that ask for GPU memory are left out.
        self.gpu = self.cpu = self.memory = 0
        self.bound: dict[tuple[str, ...], int] = {}  # node types -> milli-GPUs that only they can give
        self.shares: dict[int, int] = {}  # thousandths of a device -> how many such shares are asked for
        self.shares_changed = False  # since the caller set it back

    def note(self, known: Workload | None, row: Workload | None) -> None:
        """Count a workload as `row` instead of `known`; None: it is gone, or new."""
        if known is not None and row is not None and _same(known, row):
            return
        if known is not None:
            self._add(known, -1)
        if row is not None:
            self._add(row, 1)

    def _add(self, row: Workload, sign: int) -> None:
        if row.phase.final or row.held or row.desired is not RUNNING:
            return
        total = 0
        for group in row.groups:
            gpu, count = group.request.gpu, sign * group.wanted
            if gpu:
                total += gpu * count
                self.cpu += group.request.cpu * count
                self.memory += group.request.memory * count
                if group.request.portion < GPU:
                    self._share(group.request.portion, group.request.devices * count)
        self.gpu += total
        if total and (types := node_types(row)):
            now = self.bound.get(types, 0) + total
            if now:
                self.bound[types] = now
            else:
                del self.bound[types]

    def _share(self, portion: int, count: int) -> None:
        self.shares[portion] = self.shares.get(portion, 0) + count
        if not self.shares[portion]:
            del self.shares[portion]
        self.shares_changed = True

    @property
    def rates(self) -> Rates:
        return _rounded(self.cpu, self.gpu), _rounded(self.memory, self.gpu)

    def reserves(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Node type -> milli-GPUs that work which can use only some types will ask for at full load.

        `sizes`: milli-GPUs by node type. Work for several types counts on each in proportion to its size.
        While less is asked for than there is, the rest counts as asked for in the same proportions.
        """
        total = sum(sizes.values())
        found: dict[str, int] = {}
        for types, gpu in sorted(self.bound.items()):
            size = sum(sizes.get(each, 0) for each in types)
            for each in types if size else ():
                if share := gpu * sizes.get(each, 0) * max(total, self.gpu) // (size * self.gpu):
                    found[each] = found.get(each, 0) + share
        return found

    def copied(self) -> "Asked":
        """The same sums, for another world."""
        found = Asked()
        found.gpu, found.cpu, found.memory, found.bound = self.gpu, self.cpu, self.memory, dict(self.bound)
        found.shares, found.shares_changed = dict(self.shares), True
        return found

    def sums(self) -> tuple[object, ...]:
        return self.gpu, self.cpu, self.memory, sorted(self.bound.items()), sorted(self.shares.items())


def _same(one: Workload, other: Workload) -> bool:
    return (one.groups, one.node_type, one.affinity, one.phase.final, one.held, one.desired) == (
        other.groups, other.node_type, other.affinity, other.phase.final, other.held, other.desired,
    )  # fmt: skip


def _rounded(amount: int, gpu: int) -> int:
    each = amount * GPU // gpu if gpu else 0
    low = max(0, each.bit_length() - LEADING_BITS)
    return each >> low << low
