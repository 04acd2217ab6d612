"""The server's shapes are those that clients read: the two sides share nothing but this test."""

import typing

import pytest

from pliant.api.responses import models, models_org
from pliant.client import wire, wire_progress

KINDS = {
    name: kind
    for module in (wire, wire_progress)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and hasattr(kind, "__annotations__") and kind.__module__ == module.__name__
}


@pytest.mark.parametrize("name", KINDS)
def test_fields_are_those_of_the_wire(name: str) -> None:
    ours = getattr(models, name, None) or getattr(models_org, name)
    assert set(ours.model_fields) == set(typing.get_type_hints(KINDS[name]))


def test_every_kind_of_the_wire_is_looked_at() -> None:
    assert {"WorkloadItem", "Problem", "Submitted", "ServerItem", "OrgUnitItem", "NodeItem"} <= KINDS.keys()
