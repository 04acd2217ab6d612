"""Routes for priorities, priority classes, and the categories and types of workloads."""

import uuid
from typing import Annotated

from fastapi import Path, Response

from pliant.api.context import Here
from pliant.api.guard import needs
from pliant.api.identity.auth import Caller
from pliant.api.late import Router
from pliant.api.repeats import answered
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.responses.times import stamp
from pliant.api.schemas.models import Received
from pliant.control.board.view import Board
from pliant.control.errors import NotFound
from pliant.control.submit.submission import DEFAULT_PRIORITY
from pliant.control.submit.workload import category_of
from pliant.model.priority import PRIORITIES, PriorityClass
from pliant.model.workload import Kind
from pliant.wire.organization import (
    AppliedList,
    Categories,
    Category,
    Priorities,
    PriorityClassesRequest,
    PriorityClassItem,
    PriorityClassList,
    PriorityClassRequest,
    WorkloadType,
    WorkloadTypes,
)

router = Router(prefix="/api/v1", tags=["projects and departments"])


@router.get("/workload-priorities", dependencies=[needs("priorities:read")], **answers(200, Priorities))
def workload_priorities(here: Here) -> Response:
    """Priorities of workloads inside their project."""
    board = here.service.board
    known = [(name, value, "system") for name, value in PRIORITIES.items()]
    known += [(row.name, row.value, "user") for row in board.priorities]
    return answer(
        {
            "priorities": [
                {"id": name, "name": name, "value": value, "source": source} for name, value, source in known
            ]
        }
    )


CATEGORIES = {
    "Build": "Interactive work: notebooks, development.",
    "Train": "Training and other work that ends by itself.",
    "Deploy": "What serves others.",
}


@router.get("/workload-categories", dependencies=[needs("priorities:read")], **answers(200, Categories))
def workload_categories() -> Response:
    """What kinds of work there are; a submission may name another one."""
    return answer({"categories": [_category(name) for name in CATEGORIES]})


@router.get("/workload-categories/{key}", dependencies=[needs("priorities:read")], **answers(200, Category))
def workload_category(key: str) -> Response:
    """By id or name."""
    name = next((name for name in CATEGORIES if key in (name, _id("category", name))), None)
    if name is None:
        raise NotFound(f"There is no category {key[:60]!r}.", f"There are {', '.join(CATEGORIES)}.")
    return answer(_category(name))


@router.get("/workload-types", dependencies=[needs("priorities:read")], **answers(200, WorkloadTypes))
def workload_types() -> Response:
    """With what a submission gets that says nothing else."""
    return answer({"types": [_type(kind) for kind in Kind]})


@router.get("/workload-types/{key}", dependencies=[needs("priorities:read")], **answers(200, WorkloadType))
def workload_type(key: str) -> Response:
    """By id or name."""
    kind = next((kind for kind in Kind if key in (kind.value, _id("type", kind.value))), None)
    if kind is None:
        raise NotFound(f"There is no type of workloads {key[:60]!r}.", f"There are {', '.join(Kind)}.")
    return answer(_type(kind))


def _id(what: str, name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"pliant:workload-{what}/{name}"))


def _category(name: str) -> Category:
    return {"id": _id("category", name), "name": name, "description": CATEGORIES[name]}


def _type(kind: Kind) -> WorkloadType:
    category, priority = category_of(kind), DEFAULT_PRIORITY.get(kind, "low")
    return {
        "id": _id("type", kind.value),
        "name": kind.value,
        "group": "run.ai",
        "categoryId": _id("category", category),
        "categoryName": category,
        "priorityId": priority,
        "priorityName": priority,
    }


@router.get("/priority-classes", dependencies=[needs("priorities:read")], **answers(200, PriorityClassList))
def priority_classes(here: Here) -> Response:
    """Those that people made."""
    return answer({"priorityClasses": _items(here.service.board)})


@router.post("/priority-classes", dependencies=[needs("priorities:write")], **answers(201, PriorityClassItem))
def create_priority_class(body: Received[PriorityClassRequest], here: Here, caller: Caller) -> Response:
    """A name for a priority: more is first."""
    row = _row(body)
    return answered(
        lambda: here.service.priorities.create(row, caller.user), lambda made: answer(_item(made), 201)
    )


@router.put("/priority-classes", dependencies=[needs("priorities:write")], **answers(200, AppliedList))
def apply_priority_classes(body: Received[PriorityClassesRequest], here: Here, caller: Caller) -> Response:
    """All of them, or none: what is there with the same value stays, another value is refused."""
    done = here.service.priorities.apply([_row(each) for each in body["priorityClasses"]], caller.user)
    return answer({"applied": [{"name": row.name, "result": result} for row, result in done]})


Name = Annotated[str, Path(max_length=253)]


@router.delete(
    "/priority-classes/{name}", dependencies=[needs("priorities:write")], status_code=204, response_model=None
)
def delete_priority_class(name: Name, here: Here, caller: Caller) -> Response:
    """Work that names it keeps its value."""
    here.service.priorities.delete(name, caller.user)
    return empty()


def _row(body: PriorityClassRequest) -> PriorityClass:
    return PriorityClass(body["name"], body["value"], body.get("description", ""))


def _items(board: Board) -> list[PriorityClassItem]:
    return [_item(row) for row in board.priorities]


def _item(row: PriorityClass) -> PriorityClassItem:
    return {
        "name": row.name,
        "value": row.value,
        "description": row.description,
        "createdAt": stamp(row.created),
    }
