"""Rows that the core makes of rows."""

from dataclasses import fields, replace

from pliant.model.machine import Placement, Share
from pliant.model.workload import Task, TaskPhase


def test_an_order_keeps_all_that_it_does_not_change():
    place = Placement("n1", (Share("n1.0"),), cpu=1, memory=2)
    row = Task(
        "w", "main-3", "main", 3, TaskPhase.WAITING, Placement("n2"), Placement("n2"), 4, 5, 6, 7, 8, (9,)
    )
    unlike = Task("", "", "", 0)
    assert all(getattr(row, it.name) != getattr(unlike, it.name) for it in fields(Task) if it.name != "phase")
    changes = {"phase": TaskPhase.ORDERED, "claims": place, "carries": place, "attempt": 5, "started": None}
    assert row.ordered(place) == replace(row, **changes)
