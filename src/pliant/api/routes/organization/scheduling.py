"""Routes for cluster-wide scheduling: settings, topologies, and events that concern no workload."""

import uuid
from typing import Annotated, Any

from fastapi import Body, Depends, Query, Response

from pliant.api.context import Context, Here
from pliant.api.guard import demand, needs
from pliant.api.identity.auth import Caller
from pliant.api.identity.principal import Principal, unit_place
from pliant.api.late import Router
from pliant.api.listing import Listing, Window, cut
from pliant.api.repeats import answered
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.responses.history import EVENTS, AskedEvents, happening
from pliant.api.schemas.models import Received
from pliant.control.board.view import CLUSTER, Board
from pliant.control.errors import BadRequest, NotFound
from pliant.control.state.setting import SETTINGS, read
from pliant.model.rights import TENANT
from pliant.model.topology import Topology
from pliant.sched.settings import Settings
from pliant.wire.cluster import SettingList, TopologyChange, TopologyItem, TopologyList, TopologyRequest
from pliant.wire.events import EventList
from pliant.wire.workload import Counted

router = Router(prefix="/api/v1", tags=["scheduling"])

Typed = bool | str | float | int | None  # bool: so that true is not taken for 1


# -- settings ---------------------------------------------------------------------------------------


@router.get("/scheduling-settings", dependencies=[needs("settings:read")], **answers(200, SettingList))
def settings(here: Here) -> Response:
    """All that may be set about scheduling, and what contradicts itself in what is known."""
    return answer(_settings(here.service.board))


_DESCRIBED: dict[str, Any] = {
    "minProperties": 1,
    "propertyNames": {"enum": [it.name for it in SETTINGS]},
    "additionalProperties": {"type": ["string", "number", "null"]},
}


@router.patch("/scheduling-settings", dependencies=[needs("settings:update")], **answers(200, SettingList))
def tune(
    body: Annotated[dict[str, Typed], Body(json_schema_extra=_DESCRIBED)], here: Here, caller: Caller
) -> Response:
    """Set what is named: {"stale-grace": "5m"}; a number is seconds, GPUs or a count, null the default."""
    if not body:
        raise BadRequest("No settings were given.", 'Send names and values, as in {"stale-grace": "5m"}.')
    typed = {name: None if value is None else _text(name, value) for name, value in body.items()}
    here.service.tune(read(typed), caller.user)
    return answer(_settings(here.service.board))


def _text(name: str, value: str | int | float) -> str:
    if isinstance(value, bool):
        raise BadRequest(f"{name[:40]} cannot be {str(value).lower()}.", "Give a number or a text.")
    return f"{value:g}" if isinstance(value, float) else str(value)


def _settings(board: Board) -> SettingList:
    default = Settings()
    return {
        "settings": [
            {
                "name": setting.name,
                "value": setting.show(getattr(board.settings, setting.field)),
                "default": setting.show(getattr(default, setting.field)),
                "isDefault": getattr(board.settings, setting.field) == getattr(default, setting.field),
                "about": setting.about,
            }
            for setting in SETTINGS
        ],
        "faults": list(board.faults),
    }


# -- history ----------------------------------------------------------------------------------------

Subject = Annotated[
    str,
    Query(max_length=200, description="cluster, project/ID, department/ID, node/NAME, pool/NAME"),
]


@router.get("/events", dependencies=[needs("self:read")], **answers(200, EventList))
def events(here: Here, caller: Caller, asked: AskedEvents, subject: Subject = CLUSTER) -> Response:
    """What happened to something that is no workload, oldest first: who set what, what contradicts itself."""
    _check_subject(caller, subject, here.service.board)
    found: list[tuple[int, Any]] = []
    while more := here.service.history(subject, found[-1][0] if found else 0, 500):
        found += more
    cluster, found = here.service.board.cluster_id, EVENTS.matching(found, asked)
    return answer(cut("events", found, asked, lambda entry: happening(cluster, *entry)))


def _check_subject(caller: Principal, subject: str, board: Board) -> None:
    """Raise Forbidden unless the caller may see that project or department, or read the tenant's events."""
    kind, _, identity = subject.partition("/")
    views = {"project": board.projects, "department": board.departments}.get(kind, {})
    if identity in views and caller.may(f"{kind}s:read", unit_place(views[identity].queue)):
        return
    demand(caller, "events:read", TENANT)


# -- topologies -------------------------------------------------------------------------------------

_topologies: Listing[Topology] = Listing(
    {"name": lambda row: row.name, "phase": lambda row: "Ready", "source": lambda row: "API"},
    searched=("name",),
)
Asked = Annotated[Window, Depends(_topologies.asked)]


@router.get("/network-topologies", dependencies=[needs("topologies:read")], **answers(200, TopologyList))
def topologies(here: Here, asked: Asked) -> Response:
    board = here.service.board
    return answer(
        _topologies.page("networkTopologies", board.topologies, asked, lambda row: _topology(row, board))
    )


@router.get("/network-topologies/count", dependencies=[needs("topologies:read")], **answers(200, Counted))
def count_topologies(here: Here, asked: Asked) -> Response:
    return answer(_topologies.count(here.service.board.topologies, asked))


@router.post("/network-topologies", dependencies=[needs("topologies:write")], **answers(201, TopologyItem))
def create_topology(body: Received[TopologyRequest], here: Here, caller: Caller) -> Response:
    """Labels of nodes, the widest level first."""
    return answered(
        lambda: here.service.create_topology(body["name"], tuple(body["levels"]), caller.user),
        lambda made: answer(_topology(made, here.service.board), 201),
    )


@router.get(
    "/network-topologies/{key}", dependencies=[needs("topologies:read")], **answers(200, TopologyItem)
)
def topology(key: str, here: Here) -> Response:
    """By name or id."""
    return answer(_topology(_find(key, here), here.service.board))


@router.put(
    "/network-topologies/{key}", dependencies=[needs("topologies:write")], **answers(200, TopologyItem)
)
def update_topology(key: str, body: Received[TopologyChange], here: Here, caller: Caller) -> Response:
    name = _find(key, here).name
    if body.get("name", name) != name:
        raise BadRequest("The name of a topology cannot be changed.", "Make another one.")
    made = here.service.update_topology(name, tuple(body["levels"]), caller.user)
    return answer(_topology(made, here.service.board))


@router.delete(
    "/network-topologies/{key}",
    dependencies=[needs("topologies:write")],
    status_code=204,
    response_model=None,
)
def delete_topology(key: str, here: Here, caller: Caller) -> Response:
    here.service.delete_topology(_find(key, here).name, caller.user)
    return empty()


def topology_id(board: Board, name: str) -> str:
    cluster = board.cluster.uuid if board.cluster is not None else ""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"pliant:{cluster}/topology/{name}"))


def _find(key: str, here: Context) -> Topology:
    board = here.service.board
    for row in board.topologies:
        if key in (row.name, topology_id(board, row.name)):
            return row
    raise NotFound(
        f"There is no topology {key[:60]!r}.",
        "See them with: pliant topology list (GET /api/v1/network-topologies)",
    )


def _topology(row: Topology, board: Board) -> TopologyItem:
    labelled = [
        view for view in board.nodes if all(view.node.label(level) is not None for level in row.levels)
    ]
    return {
        "id": topology_id(board, row.name),
        "name": row.name,
        "clusterId": board.cluster.uuid if board.cluster is not None else "",
        "levels": list(row.levels),
        "nodePools": [pool.name for pool in board.pools if pool.topology == row.name],
        "nodes": len(labelled),
    }
