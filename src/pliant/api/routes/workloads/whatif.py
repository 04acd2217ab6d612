"""Routes for questions that are worked on beside the loop: what-if, drains, what would unblock a workload."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import Query, Request, Response

from pliant.api.context import Context, Here
from pliant.api.guard import demand_in_project, needs
from pliant.api.identity.auth import Caller
from pliant.api.identity.principal import Principal
from pliant.api.late import Router
from pliant.api.redaction import own_too, shown, sight
from pliant.api.responses.amounts import gpus
from pliant.api.responses.encoding import answer, answers
from pliant.api.responses.times import stamp
from pliant.api.responses.workloads import reason_item
from pliant.api.schemas.models import Received
from pliant.api.units import seen_unit
from pliant.control.board.view import Board
from pliant.control.errors import BadRequest, NotFound
from pliant.control.explain.dry import Tried
from pliant.control.explain.questions import Cures, Drained, Supposed, Unblocked
from pliant.control.explain.supposing import LABELS, supposed_job
from pliant.model.reason import Estimate, MayRead, sentence
from pliant.sched.explain.what_if import Difference
from pliant.wire.questions import Drain, DrainItem, DrainSome, Supposition, WhatIfItem

router = Router(prefix="/api/v1", tags=["questions"])


DryRun = Annotated[bool, Query(alias="dryRun", description="Show what would happen; change nothing.")]


@router.post("/what-if", dependencies=[needs("what-if:read")], **answers(200, WhatIfItem))
def what_if(body: Received[Supposition], here: Here, caller: Caller) -> Response:
    """What would be different once all has settled. Nothing is changed."""
    may_read = sight(here.service.board, caller)
    found = here.service.questions.what_if(_in_sight(body["changes"], here.service.board, caller))
    return answer(_supposed(found, here.service.now(), may_read))


def _in_sight(changes: Sequence[Any], board: Board, caller: Principal) -> Sequence[Any]:
    """The changes, with workloads by id. Raises NotFound for what is missing or the caller may not see."""
    if caller.all_seeing:
        return changes
    found: list[Any] = []
    supposed: list[tuple[str, str]] = []
    for number, entry in enumerate(changes, 1):
        project, department, name = (entry.get(it) for it in ("project", "department", "workload"))
        demand_in_project(caller, "projects:read", project or "", board)
        if department:
            seen_unit(caller, board, "department", department)
        if name:
            seen = [
                view.workload.id
                for view in board.workloads.values()
                if name in (view.workload.id, view.workload.name)
                and project in (None, view.project.id, view.project.name)
                and caller.sees(view, board)
            ]
            seen += [identity for identity, known in supposed if name in (identity, known)]
            if not seen:
                raise NotFound(f"There is no workload {name!r}.", "List them first.")
            entry = {**entry, "workload": seen[0]} if len(seen) == 1 else entry
        elif entry["kind"] == "submit":
            supposed.append(supposed_job(entry, number))
        found.append(entry)
    return found


@router.post("/nodes/{name}/drain", dependencies=[needs("nodes:update")], **answers(200, DrainItem))
def drain(
    name: str,
    body: Received[Drain],
    here: Here,
    caller: Caller,
    dry_run: DryRun = False,
) -> Response:
    """Move what can move away from a node; the rest runs to its end or is stopped, and nothing new comes."""
    return _emptied([name], body.get("stop", False), dry_run, here, caller)


@router.post("/drains", dependencies=[needs("nodes:update")], **answers(200, DrainItem))
def drain_some(body: Received[DrainSome], here: Here, caller: Caller, dry_run: DryRun = False) -> Response:
    """The same for several nodes at once: nothing moves from one of them to another."""
    label, value = body.get("label", ""), body.get("value", "")
    names = body.get("nodes", [])
    if bool(label) == bool(names) or (value and not label):
        raise BadRequest(
            "Specify either nodes or a label.", 'Send {"nodes": [...]} or {"label": ..., "value": ...}.'
        )
    if label:
        views = here.service.board.nodes
        names = [view.node.name for view in views if view.node.label(label) == value]
        if not names:
            raise NotFound(f"No node has the label {label}={value}.", LABELS)
    return _emptied(names, body.get("stop", False), dry_run, here, caller)


def _emptied(names: Sequence[str], stop: bool, dry_run: bool, here: Context, caller: Principal) -> Response:
    questions = here.service.questions
    if dry_run:
        found = questions.preview(names, stop=stop)
    else:
        found = questions.drain(names, caller.user, stop=stop)
    return answer(_drained(found, dry_run, sight(here.service.board, caller)))


def unblock_item(found: Unblocked | None, may_read: MayRead) -> dict[str, Any] | None:
    """What would let a workload start, and when it will; None if it does not wait."""
    if found is None:
        return None
    return {
        "never": found.never,
        "remedies": [remedy_item(remedy, may_read) for remedy in found.remedies],
        "complete": found.complete,
        "start": start_item(found.estimate),
    }


def start_item(when: Estimate) -> dict[str, Any]:
    """When a pending workload will start and how that is known, or why it is unknown."""
    return {
        "earliest": None if when.earliest is None else stamp(when.earliest),
        "latest": None if when.latest is None else stamp(when.latest),
        "basis": when.basis,
        "unknown": when.unknown_text,
        "unknownCode": when.unknown,
    }


def remedy_item(cures: Cures, may_read: MayRead) -> dict[str, Any]:
    """One remedy: changes that are needed together; the last one gives its kind."""
    steps = tuple(step.seen_by(may_read) for step in cures)
    return {
        "kind": steps[-1].kind,
        "text": sentence(steps),
        "steps": [
            {
                "kind": step.kind,
                "count": step.count,
                "unit": step.unit,
                "before": step.before,
                "resource": step.resource,
                "where": step.where,
                "nodes": list(step.nodes),
                "whom": [
                    {"kind": it.kind, "id": it.id, "name": it.name, "project": it.project_name}
                    for it in step.whom
                ],
                "taints": list(step.taints),
                "needs": dict(step.needs),
            }
            for step in steps
        ],
    }


def tried(request: Request, error: Exception) -> Response:
    """The answer to a change with dryRun=true."""
    assert isinstance(error, Tried)
    service = request.app.state.context.service
    may_read = sight(service.board, request.state.principal)
    found = _supposed(service.consequences(error.trial), service.now(), may_read)
    return answer({"dryRun": True, "wouldSay": list(error.trial.said), **found})


def _supposed(found: Supposed, now: int, may_read: MayRead) -> Mapping[str, Any]:
    it = found.found
    return {
        "differences": [_difference(one, found, now, may_read) for one in it.differences],
        "gpusBefore": gpus(it.gpus_before),
        "gpusAfter": gpus(it.gpus_after),
        "waitingBefore": it.waiting_before,
        "waitingAfter": it.waiting_after,
    }


def _difference(one: Difference, found: Supposed, now: int, may_read: MayRead) -> dict[str, Any]:
    named = found.names[one.workload]
    name, project = shown(named, may_read)
    told = reason_item(one.reason, now, own_too(may_read, named.project)) if one.reason is not None else None
    return {
        "name": name,
        "project": project,
        "what": one.what,
        "before": [{"node": node, "gpus": gpus(milli), "tasks": tasks} for node, milli, tasks in one.before],
        "after": [{"node": node, "gpus": gpus(milli), "tasks": tasks} for node, milli, tasks in one.after],
        "reason": told["message"] if told is not None and may_read(named.project) else "",
        "code": one.reason.code if one.reason is not None else "",
    }


def _drained(found: Drained, dry_run: bool, may_read: MayRead) -> dict[str, Any]:
    told = [(*shown(name, may_read), what) for name, what in found.workloads]
    return {
        "nodes": list(found.nodes),
        "workloads": [{"name": name, "project": project, "what": what} for name, project, what in told],
        "dryRun": dry_run,
    }
