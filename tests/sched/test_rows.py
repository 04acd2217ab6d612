"""The table of row kinds, and rows that the core derives from rows."""

from dataclasses import dataclass, fields, replace
from typing import get_args

import pytest

from pliant.model.machine import NodePool, Placement, Share
from pliant.model.workload import Task, TaskPhase
from pliant.sched.world import rows, state
from pliant.sched.world.rows import WORLD_ROWS, Row, RowKind, RowKinds, UnknownKind
from pliant.sched.world.state import World


@dataclass(frozen=True, slots=True)
class Licence:
    """A tenth kind of row, from which nothing is derived."""

    product: str
    seats: int = 1


def test_the_table_names_every_row_of_the_world():
    assert {kind.row for kind in WORLD_ROWS.kinds} == set(get_args(Row))
    for kind in WORLD_ROWS.kinds:
        assert isinstance(getattr(World(), kind.slot), dict)
        assert {*kind.identity, kind.held_by} <= {it.name for it in fields(kind.row)} | {""}


def test_a_tenth_kind_is_one_entry(monkeypatch):
    ten = RowKinds((*WORLD_ROWS.kinds, RowKind(Licence, "licences", ("product",))))
    monkeypatch.setattr(rows, "WORLD_ROWS", ten)
    monkeypatch.setattr(state, "WORLD_ROWS", ten)
    here, first, second = World(), Licence("solver"), Licence("solver", 2)
    assert here.known(first) is None
    here.put(first)
    here.put(second)
    assert here.known(first) == second == [*here.rows()][-1]
    assert here.fresh().known(first) == second
    here.drop(first)
    here.drop(first)
    assert here.known(second) is None


def test_a_row_of_no_known_kind_is_refused():
    here = World()
    for change in (here.put, here.drop, here.known, WORLD_ROWS.identity):
        with pytest.raises(UnknownKind, match=r"a Licence is no row; there are NodePool, .* and Task"):
            change(Licence("solver"))
    assert [*here.rows()] == [*World().rows()]


def test_a_pool_that_gets_another_name_is_the_same_pool():
    here = World()
    here.put(NodePool("p", "old", "label", "x"))
    here.put(NodePool("p", "new", "label", "x"))
    assert sorted(here.pools) == ["default", "new"]
    assert here.known(NodePool("p", "whatever")) == here.pools["new"]
    here.drop(NodePool("p", "old"))
    assert sorted(here.pools) == ["default"]


def test_an_order_keeps_all_that_it_does_not_change():
    place = Placement("n1", (Share("n1.0"),), cpu=1, memory=2)
    row = Task(
        "w",
        "main-3",
        "main",
        3,
        TaskPhase.WAITING,
        Placement("n2"),
        Placement("n2"),
        4,
        5,
        6,
        7,
        8,
        9,
        10,
        (11,),
        12,
    )
    unlike = Task("", "", "", 0)
    assert all(getattr(row, it.name) != getattr(unlike, it.name) for it in fields(Task) if it.name != "phase")
    changes = {"phase": TaskPhase.ORDERED, "claims": place, "carries": place, "attempt": 5, "started": None}
    assert row.ordered(place) == replace(row, **changes)
    assert row.stopping(place, (12,)) == replace(row, phase=TaskPhase.STOPPING, claims=place, resizes=(12,))
