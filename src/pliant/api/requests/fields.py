"""Fields of a submission that are stored as they are sent: where each is stored, and how it is shown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pliant.model.workload import Launch, SeenFolder, Workload
from pliant.wire import submission as wire


def ms(seconds: float) -> int:
    """Milliseconds; -1 for a negative value, which means for ever."""
    return -1 if seconds < 0 else round(seconds * 1000)


def _seconds(span: int | None) -> float | None:
    return span if span is None or span < 0 else span / 1000 if span % 1000 else span // 1000


def _pairs(given: Sequence[wire.Pair]) -> tuple[tuple[str, str], ...]:
    return tuple(
        sorted({entry["name"]: entry.get("value", "") for entry in given if not entry.get("exclude")}.items())
    )


def _told_pairs(pairs: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in pairs]


def _seen(folder: wire.SeenFolder) -> SeenFolder:
    return SeenFolder(folder["path"], folder["device"], folder["inode"], folder["bootId"])


def _told_seen(folder: SeenFolder | None) -> wire.SeenFolder | None:
    if folder is None:
        return None
    return {"path": folder.path, "device": folder.device, "inode": folder.inode, "bootId": folder.boot}


@dataclass(frozen=True, slots=True)
class Field:
    """One field. Beyond its type, which the wire checks, the service checks its value."""

    key: str  # of wire.submission.Spec
    attribute: str  # of the row that keeps it
    read: Callable[[Any], Any] = lambda sent: sent
    tell: Callable[[Any], Any] = lambda kept: None if kept == "" else kept


OF_LAUNCH = (
    Field("workingDir", "working_dir"),
    Field("submittedFrom", "seen", _seen, _told_seen),
    Field("stdin", "stdin"),
    Field("tty", "tty"),
    Field("terminationGracePeriodSeconds", "grace", ms, _seconds),
)
"""For the engine: how each task is started."""

OF_WORKLOAD = (
    Field("nodeType", "node_type"),
    Field("staleGraceSeconds", "stale_grace", ms, _seconds),
    Field("preemptionDelaySeconds", "preemption_delay", ms, _seconds),
    Field("maxRuntimeSeconds", "max_runtime", ms, _seconds),
    Field("autoDeletionTimeAfterCompletionSeconds", "ttl", ms, _seconds),
    Field("terminateAfterPreemption", "terminate_after_preemption"),
    Field("elasticDoubling", "grow_doubling"),
    Field("background", "background"),
    Field("labels", "labels", _pairs, _told_pairs),
    Field("annotations", "annotations", _pairs, _told_pairs),
)
"""For the scheduler and the record."""


def taken(fields: Sequence[Field], spec: wire.Spec) -> dict[str, Any]:
    """Attributes of the row, from what was sent."""
    sent: Mapping[str, Any] = spec
    return {field.attribute: field.read(sent[field.key]) for field in fields if field.key in sent}


def told(fields: Sequence[Field], row: Launch | Workload) -> dict[str, Any]:
    """The stored fields, in the form in which they can be sent again."""
    return {field.key: field.tell(getattr(row, field.attribute)) for field in fields}
