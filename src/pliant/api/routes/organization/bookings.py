"""Routes for bookings: reservations of GPUs for a project, and maintenance of nodes."""

from typing import Annotated

from fastapi import Path, Response

from pliant.api.context import Here
from pliant.api.guard import demand, demand_in_project, needs
from pliant.api.identity.auth import Caller
from pliant.api.identity.principal import Principal, place_of
from pliant.api.late import Router
from pliant.api.repeats import answered
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.responses.times import instant, stamp
from pliant.api.schemas.models import Received
from pliant.api.units import known_unit
from pliant.control.board.view import Board
from pliant.control.errors import BadRequest, NotFound
from pliant.model.booking import Booking
from pliant.model.machine import DEFAULT_POOL
from pliant.model.rights import TENANT
from pliant.wire.cluster import BookingItem, BookingList, BookingRequest

router = Router(prefix="/api/v1", tags=["machines"])

Key = Annotated[str, Path(max_length=253)]


@router.get("/bookings", dependencies=[needs("bookings:read")], **answers(200, BookingList))
def bookings(here: Here, caller: Caller) -> Response:
    """All of them, the first to begin first; of projects that the caller may not see without names."""
    board = here.service.board
    return answer({"bookings": [_item(row, board, caller) for row in board.bookings]})


@router.post("/bookings", dependencies=[needs("bookings:write")], **answers(201, BookingItem))
def create_booking(body: Received[BookingRequest], here: Here, caller: Caller) -> Response:
    """A reservation needs the right in its project, maintenance that to change nodes.

    Beyond the quota of its project only those may book who may change quotas in the whole tenant.
    """
    board = here.service.board
    wanted, gpus = _wanted(body, board, caller, here.service.now())
    pool, nodes = body.get("nodePool", DEFAULT_POOL), body.get("nodes", [])
    free = caller.may("nodes:update", TENANT)
    return answered(
        lambda: here.service.bookings.book(wanted, gpus=gpus, pool=pool, nodes=nodes, within_quota=not free),
        lambda row: answer(_item(row, here.service.board, caller), 201),
    )


@router.delete(
    "/bookings/{key}", dependencies=[needs("bookings:write")], status_code=204, response_model=None
)
def delete_booking(key: Key, here: Here, caller: Caller) -> Response:
    """By id or name. What it kept is free at once."""
    board = here.service.board
    row = next((row for row in board.bookings if key in (row.id, row.name)), None)
    if row is None or (row.project and not _sees(row, board, caller)):
        raise NotFound(f"There is no booking {key[:60]!r}.", "See them with: pliant booking list")
    if row.maintenance:
        demand(caller, "nodes:update", TENANT)
    else:
        demand(caller, "bookings:write", place_of(board, row.project))
    here.service.bookings.cancel(row.id, caller.user)
    return empty()


def _wanted(body: BookingRequest, board: Board, caller: Principal, now: int) -> tuple[Booking, int]:
    """The booking without its places, and its number of GPUs. Raises BadRequest, Forbidden, NotFound."""
    start = _instant(body["start"], "start") if body.get("start") else now
    project, gpus = "", body.get("gpus", 0)
    if body.get("maintenance"):
        demand(caller, "nodes:update", TENANT)
        if body.get("projectName") or gpus or not body.get("nodes"):
            raise BadRequest(
                "Maintenance is of whole nodes and for no project.", "Name nodes alone.", field="nodes"
            )
    else:
        key = body.get("projectName", "")
        if not key or not gpus:
            raise BadRequest("A reservation needs projectName and gpus.", "Or set maintenance and nodes.")
        demand_in_project(caller, "bookings:write", key, board)
        project = known_unit(board, "project", key).queue.id
    end = _instant(body["end"], "end")
    comment = body.get("comment", "")
    return Booking("", body["name"], start, end, (), project, comment, caller.user), gpus


def _instant(text: str, field: str) -> int:
    try:
        return instant(text)
    except (ValueError, OverflowError):
        raise BadRequest(
            f"{field} {text[:60]!r} is not a time.",
            "Use RFC 3339, for example 2026-01-31T12:00:00Z.",
            field=field,
        ) from None


def _sees(row: Booking, board: Board, caller: Principal) -> bool:
    return row.maintenance or (
        row.project in board.projects and caller.may("projects:read", place_of(board, row.project))
    )


def _item(row: Booking, board: Board, caller: Principal) -> BookingItem:
    sees = _sees(row, board, caller)
    there = {view.node.name for view in board.nodes if view.node.ready}
    project = board.projects[row.project].queue.name if row.project in board.projects else None
    return {
        "id": row.id,
        "name": row.name if sees else None,
        "kind": "maintenance" if row.maintenance else "reservation",
        "projectId": row.project if sees and row.project else None,
        "projectName": project if sees else None,
        "start": stamp(row.start),
        "end": stamp(row.end),
        "status": row.stage_at(board.at).value,
        "gpus": row.gpus,
        "lackingGpus": sum(count for name, count in row.places if name not in there),
        "places": [{"node": name, "gpus": count, "there": name in there} for name, count in row.places],
        "comment": row.comment if sees else None,
        "createdBy": row.user if sees else None,
        "createdAt": stamp(row.created),
    }
