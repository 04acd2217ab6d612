"""The verdicts of one cycle, why workloads wait: as columns, with the differences from an earlier cycle."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, compress, count, islice, repeat
from operator import is_not
from typing import NamedTuple

from pliant.model.reason import Reason


class Verdict(NamedTuple):
    """Why a workload (or its next wanted portion) does not have what it asks for."""

    workload: str
    reason: Reason
    position: int  # in the order in which this cycle looked at them, from 1


Kept = tuple[int, int, int]
"""(begin in the old order, begin in the new order, length) of a part that both orders have."""

GAP = 1 << 32
"""The distance of neighbouring keys. Insertions divide it; when it is used up, all keys are made again."""

EDITS = 8
"""At most so many differences of two orders are examined; the rest up to their common end counts as new."""


_column = partial(array, "q")


@dataclass(slots=True)
class Verdicts:
    """Verdicts in the order in which the cycle looked at the workloads; never changed once they are made.

    In each cycle thousands of workloads wait for a few reasons: columns are made and compared without a loop
    over each workload. A run is a sequence of neighbours with one reason. follow() looks only at what differs
    from earlier verdicts; all verdicts of such a chain share one index.
    """

    workloads: tuple[str, ...] = ()  # ids, each once
    reasons: tuple[Reason, ...] = ()  # each object once, in the order in which they come first
    which: "array[int]" = field(default_factory=_column)  # of each run: the place of its reason, from 0
    ends: "array[int]" = field(default_factory=_column)  # of each run: the place after it
    kept: tuple[Kept, ...] = field(default=(), compare=False)  # what it shares with those it follows
    _places: dict[str, int] | None = field(default=None, init=False, repr=False, compare=False)
    _index: "_Index | None" = field(default=None, init=False, repr=False, compare=False)
    _keys: list[int] = field(default_factory=list, init=False, repr=False, compare=False)  # rise; by place

    @classmethod
    def of_each(cls, workloads: Sequence[str], reasons: Sequence[Reason]) -> "Verdicts":
        """From the reason of each workload; workloads that wait for the same share one object."""
        if not reasons:
            return cls()
        last = [*map(is_not, reasons, islice(reasons, 1, None)), True]  # of its run
        of_runs = list(compress(reasons, last))
        keys = list(map(id, of_runs))
        distinct = dict(zip(keys, of_runs, strict=True))
        number = dict(zip(distinct, count(), strict=False))
        which = array("q", map(number.__getitem__, keys))
        ends = array("q", compress(count(1), last))
        return cls(tuple(workloads), tuple(distinct.values()), which, ends)

    def __len__(self) -> int:
        return len(self.workloads)

    def __iter__(self) -> Iterator[Verdict]:
        each = [repeat(reason, end - begin) for begin, end, reason in self.within(0, len(self))]
        return map(Verdict, self.workloads, chain.from_iterable(each), count(1))

    def __getitem__(self, at: int) -> Verdict:
        place = range(1, len(self.workloads) + 1)[at]
        return Verdict(self.workloads[place - 1], self._reason_at(place), place)

    def of(self, workload: str) -> Verdict | None:
        """The verdict of one workload; None if it lacks nothing."""
        place = self.position(workload)
        return Verdict(workload, self._reason_at(place), place) if place is not None else None

    def reason(self, workload: str) -> Reason | None:
        """The reason of one workload; None if it lacks nothing."""
        place = self.position(workload)
        return self._reason_at(place) if place is not None else None

    def position(self, workload: str) -> int | None:
        """The position of a workload, from 1; None if it lacks nothing. For any thread."""
        if self._index is None:
            return self.places.get(workload)
        return self._index.position(workload, self.workloads, self._keys)

    def _reason_at(self, place: int) -> Reason:
        return self.reasons[self.which[bisect_left(self.ends, place)]]

    @property
    def places(self) -> dict[str, int]:
        """Workload -> position, in order; read-only."""
        if self._places is None:
            self._places = dict(zip(self.workloads, count(1), strict=False))
        return self._places

    def without(self, gone: Collection[str]) -> "Verdicts":
        """The verdicts without these workloads."""
        if not gone or set(gone).isdisjoint(self.workloads):
            return self
        kept = [it for it in self if it.workload not in gone]
        return Verdicts.of_each([it.workload for it in kept], [it.reason for it in kept])

    def follow(self, before: "Verdicts") -> "Verdicts":
        """These verdicts as a change of earlier ones, whose index they take over."""
        index = before._index
        if index is None:
            index, before = _Index(), Verdicts()
        kept = shared(before.workloads, self.workloads)
        found = Verdicts(self.workloads, self.reasons, self.which, self.ends, kept)
        found._index = index
        found._keys = index.change(before, found)
        return found

    def recoded(self, before: "Verdicts") -> Iterator[tuple[str, Reason]]:
        """(workload, reason) of those whose code is not the one that they had in the verdicts it follows."""
        had: dict[str, str] = {}
        end = 0
        for since, _, length in (*self.kept, (len(before), 0, 0)):
            for begin, until, reason in before.within(end, since):
                had.update(dict.fromkeys(before.workloads[begin:until], reason.code))
            end = since + length
        end = 0
        for since, first, length in (*self.kept, (0, len(self), 0)):
            for begin, until, reason in self.within(end, first):
                for workload in self.workloads[begin:until]:
                    if had.get(workload) != reason.code:
                        yield workload, reason
            end = first + length
            if self._codes(first, end) == before._codes(since, since + length):
                continue
            for begin, until, reason in self.within(first, end):
                for at, to, other in before.within(begin - first + since, until - first + since):
                    if other.code != reason.code:
                        for workload in before.workloads[at:to]:
                            yield workload, reason

    def lost(self, before: "Verdicts") -> set[str]:
        """Workloads that had a verdict in those that it follows, and have none now."""
        old, new = between(self.kept, before.workloads, self.workloads)
        return {workload for part in old for workload in part}.difference(*new)

    def within(self, begin: int, end: int) -> Iterator[tuple[int, int, Reason]]:
        """(begin, end, reason) of the runs in that part of the order, cut to it."""
        if begin >= end:
            return
        for at in range(bisect_right(self.ends, begin), len(self.ends)):
            until = min(end, self.ends[at])
            yield begin, until, self.reasons[self.which[at]]
            if until == end:
                return
            begin = until

    def _codes(self, begin: int, end: int) -> tuple[list[str], list[int]]:
        """(the codes of the runs in that part of the order, where in it all runs but the last end)."""
        runs = slice(bisect_right(self.ends, begin), bisect_left(self.ends, end) + 1)
        codes = [reason.code for reason in self.reasons]
        return list(map(codes.__getitem__, self.which[runs])), [it - begin for it in self.ends[runs][:-1]]


class _Index:
    """The places of workloads in a chain of verdicts: each has a key that rises with its place."""

    def __init__(self) -> None:
        self._key: dict[str, int] = {}
        self._newest: list[int] | None = None  # keys of the newest verdicts; None: it is being changed

    def change(self, before: Verdicts, now: Verdicts) -> list[int]:
        """Change the index to the next verdicts and return their keys."""
        self._newest = None  # meanwhile a look-up in older verdicts scans their order
        old, new = between(now.kept, before.workloads, now.workloads)
        for workload in [workload for part in old for workload in part]:
            del self._key[workload]
        keys: list[int] = []
        parts = zip(new, (*now.kept, (0, 0, 0)), strict=True)
        for part, (since, _, length) in parts:
            left = keys[-1] if keys else 0
            step = (before._keys[since] - left) // (len(part) + 1) if length else GAP
            made = [left + step * at for at in range(1, len(part) + 1)]
            if not step and made:
                keys = [GAP * at for at in range(1, len(now.workloads) + 1)]
                self._key = dict(zip(now.workloads, keys, strict=True))
                break
            self._key.update(zip(part, made, strict=True))
            keys += made
            keys += before._keys[since : since + length]
        self._newest = keys
        return keys

    def position(self, workload: str, order: tuple[str, ...], keys: list[int]) -> int | None:
        key = self._key.get(workload)
        if key is not None:
            at = bisect_left(keys, key)
            if at < len(order) and order[at] == workload:
                return at + 1
        if self._newest is keys:  # these were the newest during the look-up, too
            return None
        return order.index(workload) + 1 if workload in order else None


def shared(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[Kept, ...]:
    """The parts that two orders share, in order; for orders that differ at few places."""
    at = place = alike(old, new, 0, 0)
    found = [(0, 0, at)]
    most = min(len(old), len(new)) - at
    last = 0
    while last < most and old[len(old) - last - 1] == new[len(new) - last - 1]:
        size = most - last
        while old[len(old) - last - size : len(old) - last] != new[len(new) - last - size : len(new) - last]:
            size //= 2
        last += size
    end, until, far = len(old) - last, len(new) - last, len(old) + len(new)
    for _ in range(EDITS):
        if at == end or place == until:
            break
        gone = old.index(new[place], at, end) - at if new[place] in old[at:end] else far
        come = new.index(old[at], place, until) - place if old[at] in new[place:until] else far
        if gone == come == far:  # one replaces another
            gone, come = 1, 1
        elif gone <= come:
            come = 0
        else:
            gone = 0
        at, place = at + gone, place + come
        length = alike(old[:end], new[:until], at, place)
        found.append((at, place, length))
        at, place = at + length, place + length
    found.append((end, until, last))
    return tuple([it for it in found if it[2]])


def alike(old: tuple[str, ...], new: tuple[str, ...], at: int, place: int) -> int:
    """How many entries are the same from `at` in the old order and `place` in the new one."""
    length, most = 0, min(len(old) - at, len(new) - place)
    while length < most and old[at + length] == new[place + length]:
        size = most - length
        while old[at + length : at + length + size] != new[place + length : place + length + size]:
            size //= 2
        length += size
    return length


def between(
    kept: tuple[Kept, ...], old: tuple[str, ...], new: tuple[str, ...]
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """The parts of both orders before, between and after the kept parts."""
    ends = [(0, 0), *((at + length, place + length) for at, place, length in kept)]
    begins = [*((at, place) for at, place, _ in kept), (len(old), len(new))]
    gaps = [(*end, *begin) for end, begin in zip(ends, begins, strict=True)]
    return [old[at:to] for at, _, to, _ in gaps], [new[at:to] for _, at, _, to in gaps]
