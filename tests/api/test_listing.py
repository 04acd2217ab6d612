"""Filters, order, pages and search, without a server."""

from typing import Any

import pytest
from inline_snapshot import snapshot

from pliant.api.listing import Listing, Window, compare, split_filter
from pliant.control.errors import BadRequest
from tests.api.conftest import Api

ROWS = [
    {"name": "alpha", "gpus": 2.0, "elastic": True, "ended": None},
    {"name": "beta", "gpus": 0.5, "elastic": False, "ended": "2026-01-02T00:00:00.000Z"},
    {"name": "gamma", "gpus": 10.0, "elastic": False, "ended": "2026-01-01T00:00:00.000Z"},
]
LIST: Listing[dict] = Listing(
    {
        "name": lambda row: row["name"],
        "gpus": lambda row: row["gpus"],
        "elastic": lambda row: row["elastic"],
        "ended": lambda row: row["ended"],
    }
)


def names(*filters: str, sort: str | None = None, down: bool = False, search: str = "") -> list[str]:
    window = Window(0, 50, sort, down, filters, search)
    return [row["name"] for row in LIST.matching(ROWS, window)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("name==beta", ["beta"]),
        ("name!=beta", ["alpha", "gamma"]),
        ("name=@et", ["beta"]),
        ("name!@a", []),
        ("name=^al", ["alpha"]),
        ("name=$mma", ["gamma"]),
        ("gpus>=2", ["alpha", "gamma"]),  # as numbers: as text 10 comes before 2
        ("gpus<=0.5", ["beta"]),
        ("gpus==2.00", ["alpha"]),
        ("elastic==true", ["alpha"]),
        ("ended==", ["alpha"]),
        ("ended<=2026-01-01T12", ["alpha", "gamma"]),
    ],
)
def test_filters(text: str, found: list[str]) -> None:
    assert names(text) == found


def test_filters_add_up() -> None:
    assert names("elastic==false", "gpus>=1") == ["gamma"]


def test_order_with_nothing_last() -> None:
    assert names(sort="ended") == ["gamma", "beta", "alpha"]
    assert names(sort="gpus", down=True) == ["gamma", "alpha", "beta"]
    assert names(down=True) == ["gamma", "beta", "alpha"]


def test_search_does_not_look_at_case() -> None:
    assert names(search="ALP") == ["alpha"]


def test_pages_lead_to_the_next_one() -> None:
    window = Window(0, 2, None, False, (), "")
    first = LIST.page("rows", ROWS, window, lambda row: row["name"])
    assert first == {"rows": ["alpha", "beta"], "next": 2}
    last = LIST.page("rows", ROWS, Window(2, 2, None, False, (), ""), lambda row: row["name"])
    assert last == {"rows": ["gamma"]}
    assert LIST.page("rows", ROWS, Window(9, 2, None, False, (), ""), str) == {"rows": []}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("name==a==b", ("name", "==", "a==b")),
        ("name=@==", ("name", "=@", "==")),
        ("createdAt>=2026", ("createdAt", ">=", "2026")),
    ],
)
def test_a_filter_is_cut_at_its_first_operator(text: str, parts: tuple[str, str, str]) -> None:
    assert split_filter(text) == parts


@pytest.mark.parametrize("text", ["name", "==a", "name=a", ""])
def test_what_is_no_filter(text: str) -> None:
    with pytest.raises(BadRequest, match="cannot be read"):
        split_filter(text)


def test_unknown_fields_are_named() -> None:
    with pytest.raises(BadRequest) as caught:
        names("colour==red")
    assert str(caught.value) == snapshot(
        "filterBy: there is no field 'colour' to go by. Choose one of elastic, ended, gpus, name."
    )
    with pytest.raises(BadRequest, match="sortBy"):
        names(sort="colour")


def test_a_truth_is_no_number() -> None:
    assert not compare(True, "==", "1")


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("createdAt>=2026-01-01T13:00:00+02:00", True),  # an hour earlier, though as text an hour later
        ("createdAt>=2026-01-01T12:00:01Z", False),
        ("createdAt==2026-01-01T12:00:00Z", True),
        ("createdAt!=2026-01-01T12:00:00.000+00:00", False),
        ("createdAt<=2026-01-02", True),
        ("completedAt<=2036-01-01T00:00:00Z", False),
        ("completedAt!=2036-01-01T00:00:00Z", True),
        ("completedAt==", True),
        ("createdAt=^2026-01", True),
        ("sinceAt>=2026-01-01T12:00:00Z", True),
        ("sinceAt>=2026-01-01T12:00:01Z", False),
    ],
)
def test_times_are_compared_as_times(wanted: str, found: bool) -> None:
    row = {"createdAt": "2026-01-01T12:00:00.000Z", "completedAt": None, "sinceAt": 1_767_268_800_000}
    listing: Listing[Any] = Listing({name: lambda it, name=name: it[name] for name in row})
    assert bool(listing.matching([row], Window(0, 50, None, False, (wanted,), ""))) is found


@pytest.mark.parametrize("wanted", ["banana", "2026-02-30", "12"])
def test_what_is_no_time(quiet: Api, wanted: str) -> None:
    told = quiet.get("/api/v1/workloads", 400, filterBy=f"createdAt>={wanted}")
    assert told["details"] == "Give a time, for example 2026-01-31T12:00:00Z."
