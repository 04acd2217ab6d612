"""Bookings over the API: making, listing and deleting them; who may; what others see."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pliant.wire.cluster import BookingItem
from tests.api.conform import conform
from tests.api.conftest import Api

PATH = "/api/v1/bookings"


def later(minutes: int) -> str:
    return (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat()


def test_a_reservation_from_its_making_to_its_end(api: Api) -> None:
    api.call("POST", "/api/v1/org-unit/projects", 201, json={"name": "team-b"})
    body = {"name": "demo", "projectName": "team-b", "gpus": 1, "end": later(60), "comment": "for the visit"}
    made = api.call("POST", PATH, 201, json=body)
    conform(BookingItem, made)
    assert (made["kind"], made["projectName"], made["gpus"], made["status"]) == (
        "reservation",
        "team-b",
        1,
        "Active",
    )
    assert made["places"] == [{"node": "node-0", "gpus": 1, "there": True}]
    assert [row["name"] for row in api.get(PATH)["bookings"]] == ["demo"]
    assert api.get("/api/v1/nodes/node-0")["bookedGpus"] == 1
    again = api.call("POST", PATH, 409, json=body)
    assert again["message"] == "A booking named 'demo' already exists."
    api.call("DELETE", f"{PATH}/demo", 204)
    assert api.get(PATH) == {"bookings": []}
    api.call("DELETE", f"{PATH}/demo", 404)


def test_maintenance_of_a_node(api: Api) -> None:
    body = {"name": "fix", "maintenance": True, "nodes": ["node-0"], "end": later(60)}
    made = api.call("POST", PATH, 201, json=body)
    assert (made["kind"], made["projectName"]) == ("maintenance", None)
    assert api.get("/api/v1/nodes/node-0")["maintenanceUntil"] == made["end"]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 400, "name must be given."),
        ({"name": "x"}, 400, "end must be given."),
        ({"name": "x", "end": "soon"}, 400, "A reservation needs projectName and gpus."),
        ({"name": "x", "end": "soon", "projectName": "default", "gpus": 1}, 400, "end 'soon' is not a time."),
        ({"name": "x", "end": later(-1), "projectName": "default", "gpus": 1}, 400,
         "The booking ends before it starts."),
        ({"name": "x", "start": later(-60), "end": later(9), "projectName": "default", "gpus": 1}, 400,
         "The booking starts in the past."),
        ({"name": "X x", "end": later(9), "projectName": "default", "gpus": 1}, 400,
         "'X x' cannot be the name of a booking."),
        ({"name": "x", "end": later(9), "projectName": "moon", "gpus": 1}, 404,
         "There is no project 'moon'."),
        ({"name": "x", "end": later(9), "projectName": "default", "gpus": 99}, 409,
         "99 GPUs cannot be booked: there are 2."),
        ({"name": "x", "end": later(9), "maintenance": True}, 400,
         "Maintenance is of whole nodes and for no project."),
        ({"name": "x", "end": later(9), "maintenance": True, "nodes": ["moon"]}, 404,
         "There is no node 'moon'."),
    ],
)  # fmt: skip
def test_bookings_that_cannot_be(quiet: Api, body: Any, status: int, message: str) -> None:
    assert quiet.call("POST", PATH, status, json=body)["message"] == message
    assert quiet.get(PATH) == {"bookings": []}
