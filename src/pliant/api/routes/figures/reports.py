"""Routes for reports: made once from measurements, kept until they are deleted, downloaded as CSV."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from fastapi import Depends, Response

from pliant.api.context import Context, Here
from pliant.api.errors import Forbidden
from pliant.api.guard import needs
from pliant.api.identity.auth import Caller
from pliant.api.identity.principal import Principal
from pliant.api.late import Router
from pliant.api.listing import Listing, Window
from pliant.api.repeats import answered
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.responses.measurements import shown
from pliant.api.responses.sheet import attached, lines
from pliant.api.responses.times import instant, stamp
from pliant.api.schemas.models import Received
from pliant.api.units import may_see_unit
from pliant.control.board.view import QueueView
from pliant.control.errors import BadRequest, NotFound
from pliant.model.asset import Asset, AssetKind, Scope
from pliant.model.sample import Sample
from pliant.wire.reports import ReportItem, ReportList, ReportRequest, ReportsAvailable
from pliant.wire.workload import Counted

router = Router(prefix="/api/v1/org-unit/reports", tags=["reports"])


FILTER = re.compile(r"(projectName|departmentName|clusterId)==(.+)")
HOUR = 3_600_000  # ms

UNITS = {
    "gpu_quota_hours": "GPU_QUOTA",
    "gpu_allocation_hours": "GPU_ALLOCATION",
    "cpu_allocation_millicore_hours": "CPU_ALLOCATION_MILLICORES",
    "memory_allocation_mb_hours": "CPU_MEMORY_ALLOCATION_MB",
}
MACHINES = {"gpu_total_hours": "TOTAL_GPU", "gpu_allocation_hours": "ALLOCATED_GPU"}
"""Columns that are sums over the period, and the metric of each."""

MEANS = {
    "gpu_utilization_percent": "GPU_UTILIZATION",
    "gpu_memory_utilization_percent": "GPU_MEMORY_UTILIZATION",
}
"""Columns that are means over the time in which they were measured, and the metric of each."""


def _rows(here: Context, caller: Principal) -> list[Asset]:
    """The caller's own; an administrator of the tenant sees all."""
    found = (row for row in here.service.board.assets if row.kind is AssetKind.REPORT)
    return [row for row in found if caller.admin or row.created_by == caller.user]


def _known(here: Context, caller: Principal, identity: str) -> Asset:
    for row in _rows(here, caller):
        if row.id == identity:
            return row
    raise NotFound(f"There is no report {identity[:60]!r}.", "See them with: GET /api/v1/org-unit/reports")


def _item(row: Asset) -> ReportItem:
    body = json.loads(row.body)
    return {
        "id": row.id,
        "name": row.name,
        "description": row.description,
        "start": stamp(body["start"]),
        "end": stamp(body["end"]),
        "groupBy": body["groupBy"],
        "filterBy": body["filterBy"],
        "createdAt": stamp(row.created),
        "createdBy": row.created_by,
        "tenantId": 1,
        "status": "Ready",
        "statusUpdatedAt": stamp(row.created),
        "statusMessage": "",
    }


_listing: Listing[Asset] = Listing(
    {
        "name": lambda row: row.name,
        "description": lambda row: row.description,
        "createdBy": lambda row: row.created_by,
        "createdAt": lambda row: stamp(row.created),
        "status": lambda row: "Ready",
    },
    searched=("name", "description"),
)
Asked = Annotated[Window, Depends(_listing.asked)]


@router.get("", dependencies=[needs("reports:read")], **answers(200, ReportList))
def reports(here: Here, caller: Caller, asked: Asked) -> Response:
    return answer(_listing.page("reports", _rows(here, caller), asked, _item))


@router.get("/count", dependencies=[needs("reports:read")], **answers(200, Counted))
def count_reports(here: Here, caller: Caller, asked: Asked) -> Response:
    return answer(_listing.count(_rows(here, caller), asked))


@router.get("/availability", dependencies=[needs("reports:read")], **answers(200, ReportsAvailable))
def available() -> Response:
    """They need no storage of their own."""
    return answer({"isAvailable": True})


@router.post("", dependencies=[needs("reports:read", writes=True)], **answers(202, ReportItem))
def create_report(body: Received[ReportRequest], here: Here, caller: Caller) -> Response:
    """Of the projects that the caller may see; it is made at once."""
    if caller.only:
        raise Forbidden(f"The access key is bound to {caller.only}.", "Make a report with another key.")
    start, end = _moment(body, "start"), _moment(body, "end")
    if end <= start:
        raise BadRequest("The end is not after the start.", "Give a start before the end.", field="end")
    by = body.get("groupBy") or "Cluster"
    filters = body.get("filterBy", [])
    text = lines(_lines(here, caller, by, filters, start, end))
    kept = {"start": start, "end": end, "groupBy": by, "filterBy": filters, "file": text}
    row = Asset(
        "",
        AssetKind.REPORT,
        "",
        body["name"],
        Scope.TENANT,
        "",
        json.dumps(kept),
        body.get("description", ""),
    )
    return answered(
        lambda: here.service.assets.create(row, caller.user), lambda made: answer(_item(made), 202)
    )


@router.get("/{identity}", dependencies=[needs("reports:read")], **answers(200, ReportItem))
def report(identity: str, here: Here, caller: Caller) -> Response:
    return answer(_item(_known(here, caller, identity)))


@router.get("/{identity}/file", dependencies=[needs("reports:read")], response_class=Response)
def file(identity: str, here: Here, caller: Caller) -> Response:
    """The report as CSV."""
    row = _known(here, caller, identity)
    return attached(f"report-{row.id}", json.loads(row.body)["file"])


@router.delete(
    "/{identity}", dependencies=[needs("reports:read", writes=True)], status_code=204, response_model=None
)
def delete_report(identity: str, here: Here, caller: Caller) -> Response:
    if caller.only:
        raise Forbidden(f"The access key is bound to {caller.only}.", "Delete a report with another key.")
    here.service.assets.delete(_known(here, caller, identity).id, caller.user)
    return empty()


def _moment(body: Mapping[str, Any], field: str) -> int:
    try:
        return instant(body[field])
    except (ValueError, OverflowError):
        raise BadRequest(
            f"{field} {body[field][:40]!r} is not a time.", "Write it as 2026-01-31T12:00:00Z.", field=field
        ) from None


# -- what is in them --------------------------------------------------------------------------------


def _lines(
    here: Context, caller: Principal, by: str, filters: Sequence[str], start: int, end: int
) -> Iterator[list[str]]:
    """The header, and a line for each group."""
    wanted = _wanted(filters)
    sums = MACHINES if by in ("Nodepool", "Cluster") else UNITS
    yield ["group", "id", *sums, *MEANS, "measured_percent"]
    cluster = here.service.board.cluster
    if wanted["clusterId"] and (cluster is None or cluster.uuid not in wanted["clusterId"]):
        return
    for subject, identity, name in _groups(here, caller, by, wanted):
        samples = here.service.series.long(subject, start, end)
        cells = [shown(_hours(samples, metric)) for metric in sums.values()]
        cells += [_mean(samples, metric) for metric in MEANS.values()]
        covered = sum(it.covered for it in samples) * 100_000 // (end - start)
        yield [name, identity, *cells, shown(min(covered, 100_000))]


def _wanted(filters: Sequence[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {"projectName": set(), "departmentName": set(), "clusterId": set()}
    for text in filters:
        match = FILTER.fullmatch(text)
        if match is None:
            raise BadRequest(
                f"filterBy: {text[:60]!r} cannot be read.",
                "Write projectName==NAME, departmentName==NAME or clusterId==UUID.",
                field="filterBy",
            )
        found[match[1]].add(match[2])
    return found


def _groups(
    here: Context, caller: Principal, by: str, wanted: Mapping[str, set[str]]
) -> Iterator[tuple[str, str, str]]:
    """(subject, id, name)."""
    board = here.service.board
    if by in ("Nodepool", "Cluster") and (wanted["projectName"] or wanted["departmentName"]):
        raise BadRequest(
            f"filterBy: in groups of {by.lower()}s there is nothing to tell projects apart.",
            "Set groupBy to Project or Department.",
            field="filterBy",
        )
    if by == "Cluster" and board.cluster is not None:
        yield "cluster", board.cluster.uuid, board.cluster.name
    elif by == "Nodepool":
        for pool in board.pools:
            yield f"pool:{pool.name}", pool.id, pool.name
    elif by == "Department":
        for view in board.departments.values():
            if may_see_unit(caller, view, "department") and _named(view, wanted["departmentName"]):
                yield f"department:{view.queue.id}", view.queue.id, view.queue.name
    elif by == "Project":
        names = wanted["departmentName"]
        above = {key for key, view in board.departments.items() if _named(view, names)}
        for view in board.projects.values():
            inside = not names or getattr(view.queue, "department", "") in above
            if inside and may_see_unit(caller, view, "project") and _named(view, wanted["projectName"]):
                yield f"project:{view.queue.id}", view.queue.id, view.queue.name


def _named(view: QueueView, names: set[str]) -> bool:
    return not names or view.queue.name in names


def _hours(samples: Sequence[Sample], metric: str) -> int:
    """The sum over the period, in thousandths of the metric's unit times hours."""
    return sum(_whole(sample, metric) * sample.covered for sample in samples) // HOUR


def _whole(sample: Sample, metric: str) -> int:
    return next((it.value for it in sample.numbers if it.name == metric and not it.part), 0)


def _mean(samples: Sequence[Sample], metric: str) -> str:
    """The mean over the measured time; '' if it was never measured."""
    found = [
        (it.value, sample.covered)
        for sample in samples
        for it in sample.numbers
        if it.name == metric and not it.part
    ]
    return shown(sum(value * ms for value, ms in found) // sum(ms for _, ms in found)) if found else ""
