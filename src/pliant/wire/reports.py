"""Reports: GPUs, processors and memory that were allocated and used in a past period."""

from typing import Annotated, Literal, Required, TypedDict

from pliant.wire.limits import Length, Looks, Name
from pliant.wire.shapes import Stamp
from pliant.wire.workload import Page

Grouping = Literal["Nodepool", "Project", "Department", "Cluster"]
Moment = Annotated[str, Length(64, least=1), Looks(format="date-time")]
Filter = Annotated[
    str, Length(300, least=1), Looks(r"^(projectName|departmentName|clusterId)==[^\x00-\x1f]+$")
]  # projectName==NAME, departmentName==NAME, clusterId==UUID


class ReportRequest(TypedDict, total=False):
    name: Required[Name]
    description: Annotated[str, Length(250)]
    start: Required[Moment]
    end: Required[Moment]
    groupBy: Grouping | None  # default: Cluster
    filterBy: Annotated[list[Filter], Length(100)]


class ReportItem(TypedDict):
    """An entry of GET /api/v1/org-unit/reports."""

    id: str
    name: str
    description: str
    start: Stamp
    end: Stamp
    groupBy: Grouping
    filterBy: list[str]
    createdAt: Stamp
    createdBy: str
    tenantId: int  # always 1
    status: Literal["Pending", "Processing", "Ready", "Failed"]
    statusUpdatedAt: Stamp
    statusMessage: str


class ReportList(Page):
    reports: list[ReportItem]


class ReportsAvailable(TypedDict):
    isAvailable: bool
