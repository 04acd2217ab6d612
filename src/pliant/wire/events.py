"""Events of workloads and of other things, and the history that is made of them."""

from typing import Any, Literal, NotRequired, TypedDict

from pliant.wire.shapes import Stamp
from pliant.wire.workload import NamedItem, Page, Phase


class Involved(TypedDict):
    """What an event is about."""

    kind: str
    name: str
    uid: NotRequired[str]  # of a workload
    namespace: NotRequired[str]


class EventItem(TypedDict):
    """An entry of GET /api/v1/workloads/{id}/events; the history with its reasons."""

    createdAt: Stamp
    type: Literal["Normal", "Warning"]
    reason: str  # kind of event
    message: str
    source: str
    clusterId: str
    involvedObject: Involved
    id: str
    # ours
    who: str
    code: str  # code of the typed reason
    numbers: dict[str, Any]
    names: list[NamedItem]
    decision: str
    attempt: str


class EventList(Page):
    events: list[EventItem]


class RecordMeta(TypedDict):
    creationTimestamp: Stamp
    type: Literal["Event", "PhaseUpdate"]


class PhaseUpdate(TypedDict):
    phase: Phase
    phaseMessage: str


class RecordSpec(TypedDict):
    """One of them."""

    event: NotRequired[EventItem]
    phaseUpdate: NotRequired[PhaseUpdate]


class RecordItem(TypedDict):
    meta: RecordMeta
    spec: RecordSpec


class RecordList(Page):
    """GET /api/v1/workloads/{id}/history."""

    records: list[RecordItem]
