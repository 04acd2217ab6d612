"""Values that are not frozen, because a cycle makes thousands of them, are still never changed."""

import ast
from dataclasses import fields, replace
from pathlib import Path

from pliant.model.machine import Placement, Share
from pliant.model.workload import Request, Task

SRC = Path(__file__).resolve().parents[2] / "src" / "pliant"
ROOMS = ("model", "sched", "control", "store")
NAMES = {field.name for kind in (Share, Placement, Task) for field in fields(kind)}
OTHERS = {("modes.py", "claims"), *(("asked.py", name) for name in ("gpu", "cpu", "memory", "shares"))}
"""Places where another class has an attribute of that name: an attempt, a count of requests."""


def changed_outside(code: str) -> set[str]:
    """Attributes of these names that are assigned or deleted, except on `self`."""
    return {
        node.attr
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and node.attr in NAMES
        if not (isinstance(node.value, ast.Name) and node.value.id == "self")
    }


def test_no_value_is_changed() -> None:
    files = [path for room in ROOMS for path in (SRC / room).rglob("*.py")]
    found = {(path.name, name) for path in files for name in changed_outside(path.read_text("utf-8"))}
    assert found == OTHERS


def test_a_change_is_found() -> None:
    assert changed_outside("row.phase = phase\nself.claims = None\ndel place.shares\nx = row.cpu") == {
        "phase",
        "shares",
    }


def test_equal_values_are_one_key() -> None:
    one, other = Placement("n", (Share("g"),)), Placement("n", (Share("g"),))
    assert len({one, other}) == len({Task("w", "t", "g", 0, claims=it) for it in (one, other)}) == 1


def test_a_request_is_compared_in_all_it_asks_for() -> None:
    """Request has a hand-written comparison, which must include a new field."""
    plain = Request()
    for field in fields(Request):
        other = replace(plain, **{field.name: "u" if field.name == "owner" else 7})
        assert other != plain and hash(other) != hash(plain), field.name
    assert Request(devices=1) == Request(devices=1) != (1, 1000, 0, 0, 0, (0, 0, ""))
