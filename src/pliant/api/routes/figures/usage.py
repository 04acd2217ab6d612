"""Routes for the GPU usage of people by day, month, project and node pool, and for their limits."""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Literal

from fastapi import Query, Response

from pliant.api.context import Here
from pliant.api.guard import needs
from pliant.api.identity.auth import Caller
from pliant.api.identity.principal import Principal, place_of
from pliant.api.late import Router
from pliant.api.responses.encoding import answer, answers, empty, or_csv
from pliant.api.responses.sheet import sheet
from pliant.api.schemas.models import Received
from pliant.api.units import unit_missing, unit_named
from pliant.control.board.view import Board
from pliant.control.errors import BadRequest
from pliant.control.usecases.usage import Standing
from pliant.model.identity import Allowance
from pliant.model.ledger import Usage
from pliant.model.rights import Place
from pliant.wire.usage import LimitItem, LimitList, LimitRequest, UsageReport, UsageRow

router = Router(prefix="/api/v1", tags=["usage"])

SECOND = 1_000_000
"""Milli-GPUs times ms in a GPU second."""

HOUR = 3600 * SECOND

KEYS = ("user", "project", "nodePool", "month", "day")
SUMS = ("allocatedGpuSeconds", "measuredGpuSeconds", "usedGpuSeconds", "runs", "failed")

_KEY = "|".join(KEYS)
_DAY = {"format": "date"}
Since = Annotated[
    str,
    Query(
        alias="from",
        description="First day, UTC: 2026-11-01. Default: of this month.",
        json_schema_extra=_DAY,
    ),
]
Until = Annotated[
    str, Query(alias="to", description="Last day, UTC. Default: today.", json_schema_extra=_DAY)
]
By = Annotated[
    str,
    Query(
        description=f"Grouped by, separated by commas: {', '.join(KEYS)}.",
        json_schema_extra={"pattern": f"^(({_KEY})(,({_KEY}))*)?$"},
    ),
]
Form = Annotated[Literal["json", "csv"], Query(alias="format")]
User = Annotated[str, Query(max_length=128)]
InProject = Annotated[str, Query(alias="projectName", max_length=255)]


# -- usage ------------------------------------------------------------------------------------------


@router.get("/usage", dependencies=[needs("usage:read")], **or_csv(answers(200, UsageReport)))
def usage(
    here: Here,
    caller: Caller,
    since: Since = "",
    until: Until = "",
    by: By = "user,project",
    form: Form = "json",
) -> Response:
    """GPU seconds that jobs held, and used as far as the driver tells; what runs counts until now."""
    now = here.service.now()
    today = datetime.fromtimestamp(now / 1000, UTC).date()
    first, last = _day(since, today.replace(day=1), "from"), _day(until, today, "to")
    if last < first:
        raise BadRequest(f"to={last} is before from={first}.", "Swap the two.", field="to")
    keys = [word.strip() for word in by.split(",") if word.strip()]
    for key in keys:
        if key not in KEYS:
            raise BadRequest(
                f"Usage cannot be grouped by {key[:40]!r}.", f"Use {', '.join(KEYS)}.", field="by"
            )
    board = here.service.board
    rows = [
        row
        for row in here.service.usages.of(_ms(first), _ms(last + timedelta(days=1)))
        if caller.may("usage:read", place_of(board, row.project), own=row.user == caller.person)
    ]
    found = grouped(rows, keys, board)
    if form == "csv":
        named: list[str] = [*(key for key in KEYS if key in keys), *SUMS]
        return sheet(
            f"pliant-usage-{first}-{last}",
            named,
            ([row[name] for name in named] for row in found),  # type: ignore[literal-required]
        )
    total = grouped(rows, [], board)
    report = {"from": str(first), "to": str(last), "rows": found, "total": total[0] if total else _row(())}
    return answer(report)


def grouped(rows: Iterable[Usage], keys: Sequence[str], board: Board) -> list[UsageRow]:
    """One row for each combination of the keys' values, in order."""
    found: dict[tuple[str, ...], list[Usage]] = {}
    for row in rows:
        known = board.projects.get(row.project)
        values = {
            "user": row.user,
            "project": known.queue.name if known is not None else f"{row.project_name} (deleted)",
            "nodePool": row.pool,
            "month": row.day[:7],
            "day": row.day,
        }
        found.setdefault(tuple(values[key] for key in KEYS if key in keys), []).append(row)
    named = [key for key in KEYS if key in keys]
    made = []
    for values_, mine in sorted(found.items()):
        item = _row(mine)
        item.update(dict(zip(named, values_, strict=True)))  # type: ignore[typeddict-item]
        made.append(item)
    return made


def _row(rows: Iterable[Usage]) -> UsageRow:
    rows = [*rows]
    return {
        "allocatedGpuSeconds": sum(row.held for row in rows) / SECOND,
        "measuredGpuSeconds": sum(row.measured for row in rows) / SECOND,
        "usedGpuSeconds": sum(row.busy for row in rows) / SECOND,
        "runs": sum(row.runs for row in rows),
        "failed": sum(row.failed for row in rows),
    }


def _day(text: str, default: date, field: str) -> date:
    if not text:
        return default
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise BadRequest(f"{text[:40]!r} is not a day.", "Write it as in 2026-11-24.", field=field) from None


def _ms(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000


# -- limits -----------------------------------------------------------------------------------------


@router.get("/limits", dependencies=[needs("limits:read")], **answers(200, LimitList))
def limits(here: Here, caller: Caller) -> Response:
    """Those that the caller may see: all within the scope, otherwise those that hold for the caller."""
    board = here.service.board
    found = here.service.usages.standings(caller.person)
    return answer({"limits": [_limit(it, board) for it in found if _sees(caller, it, board)]})


@router.put("/limits", dependencies=[needs("limits:write")], **answers(200, LimitList))
def set_limit(body: Received[LimitRequest], here: Here, caller: Caller) -> Response:
    """Replaces what was set for that user there. What has started is not stopped."""
    board = here.service.board
    running, hours = body.get("gpus"), body.get("gpuHours")
    if running is None and hours is None and body.get("pending") is None:
        raise BadRequest("No limit is named.", "Send gpus, pending or gpuHours; DELETE takes a limit away.")
    change = Allowance(
        body.get("user", ""),
        _project(board, body.get("projectName", "")),
        None if running is None else round(running * 1000),
        body.get("pending"),
        None if hours is None else round(hours * HOUR),
    )
    here.service.usages.limit(change, caller.user)
    found = here.service.usages.standings(caller.person)
    key = (change.subject, change.project)
    return answer(
        {"limits": [_limit(it, board) for it in found if (it.limit.subject, it.limit.project) == key]}
    )


@router.delete("/limits", dependencies=[needs("limits:write")], status_code=204, response_model=None)
def delete_limit(here: Here, caller: Caller, user: User = "", project: InProject = "") -> Response:
    """Without `user` that for everybody, without `projectName` that for all projects together."""
    found = _project(here.service.board, project, gone=True)
    here.service.usages.limit(Allowance(user, found), caller.user)
    return empty()


def _project(board: Board, key: str, *, gone: bool = False) -> str:
    """The id of a project; with `gone`, also of a deleted one that has a limit. Raises NotFound."""
    if not key:
        return ""
    found = unit_named(board, "project", key)
    if found is not None:
        return found.queue.id
    if gone and any(key == project for _, project in board.access.allowances):
        return key
    raise unit_missing("project", key)


def _sees(caller: Principal, it: Standing, board: Board) -> bool:
    row = it.limit
    place = place_of(board, row.project) if row.project else Place()
    own = row.subject in ("", caller.person)
    return caller.may("limits:read", place, own=own) or (own and caller.may("limits:read"))


def _limit(it: Standing, board: Board) -> LimitItem:
    row = it.limit
    known = board.projects.get(row.project)
    return {
        "user": row.subject or None,
        "project": None if not row.project else known.queue.name if known is not None else row.project,
        "gpus": None if row.running is None else row.running / 1000,
        "pending": row.waiting,
        "gpuHours": None if row.gpu_ms is None else row.gpu_ms / HOUR,
        "holdsGpus": it.running / 1000,
        "hasPending": it.waiting,
        "usedGpuHours": None if row.gpu_ms is None else round(it.gpu_ms / HOUR, 3),
    }
