"""The server's shapes are those that clients read: the two sides share nothing but this test."""

import typing

import pytest

from pliant.api import shapes
from pliant.client import wire

KINDS = [
    name
    for name, kind in vars(wire).items()
    if isinstance(kind, type) and hasattr(kind, "__annotations__") and kind.__module__ == wire.__name__
]


@pytest.mark.parametrize("name", KINDS)
def test_fields_are_those_of_the_wire(name: str) -> None:
    assert set(getattr(shapes, name).model_fields) == set(typing.get_type_hints(getattr(wire, name)))


def test_every_kind_of_the_wire_is_looked_at() -> None:
    assert {"WorkloadItem", "Problem", "Submitted", "ServerItem", "OrgUnitItem", "NodeItem"} <= set(KINDS)
