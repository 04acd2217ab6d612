"""What would unblock, what-if, draining nodes: questions that are worked on beside the loop."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict

from pliant.api.amounts import gpus
from pliant.api.answers import answer, answers
from pliant.api.auth import Caller
from pliant.api.context import Here
from pliant.api.shapes import Shape
from pliant.api.sight import Sees, shown, sight
from pliant.api.times import stamp
from pliant.control.questions import Drained, Supposed, Unblocked
from pliant.sched.remedy import Remedy
from pliant.sched.whatif import Difference

router = APIRouter(prefix="/api/v1", tags=["questions"])


class Supposition(BaseModel):
    """What is supposed: a list of changes, each with its kind. Others of its fields depend on the kind."""

    model_config = ConfigDict(extra="forbid")
    changes: list[dict[str, Any]]


class Drain(BaseModel):
    model_config = ConfigDict(extra="forbid")
    stop: bool = False  # stop what cannot move; else it runs to its end


class WhatIfItem(Shape):
    differences: list[dict[str, Any]]
    gpusBefore: float
    gpusAfter: float
    waitingBefore: int
    waitingAfter: int


class DrainItem(Shape):
    nodes: list[str]
    workloads: list[dict[str, Any]]
    dryRun: bool


@router.post("/what-if", **answers(200, WhatIfItem))
def what_if(body: Supposition, here: Here, caller: Caller) -> Response:
    """What would be different once all has settled. Nothing is changed."""
    sees = sight(here.service.board, caller)
    return answer(_supposed(here.service.questions.what_if(body.changes), sees))


@router.post("/nodes/{name}/drain", **answers(200, DrainItem))
def drain(
    name: str,
    body: Drain,
    here: Here,
    caller: Caller,
    dry_run: Annotated[bool, Query(alias="dryRun", description="Only say what would happen.")] = False,
) -> Response:
    """Move what can move away from a node; the rest runs to its end or is stopped, and nothing new comes."""
    questions = here.service.questions
    if dry_run:
        found = questions.preview([name], stop=body.stop)
    else:
        found = questions.drain([name], caller.user, stop=body.stop)
    return answer(_drained(found, dry_run, sight(here.service.board, caller)))


def unblock_item(found: Unblocked | None, sees: Sees) -> dict[str, Any] | None:
    """What would let a workload start, and when it will; None if it does not wait."""
    if found is None:
        return None
    when = found.estimate
    return {
        "never": found.never,
        "remedies": [remedy_item(remedy, sees) for remedy in found.remedies],
        "complete": found.complete,
        "start": {
            "earliest": None if when.earliest is None else stamp(when.earliest),
            "latest": None if when.latest is None else stamp(when.latest),
            "basis": when.basis,
            "unknown": when.unknown,
        },
    }


def remedy_item(remedy: Remedy, sees: Sees) -> dict[str, Any]:
    steps = tuple(_censored(step, sees) for step in remedy.steps)
    told = replace(steps[-1], after=steps[:-1])
    return {
        "kind": remedy.kind,
        "text": told.text,
        "steps": [
            {
                "kind": step.kind,
                "count": step.count,
                "unit": step.unit,
                "before": step.before,
                "resource": step.resource,
                "where": step.where,
                "whom": [{"name": it.name, "project": it.project_name} for it in step.whom],
            }
            for step in steps
        ],
    }


def _censored(step: Remedy, sees: Sees) -> Remedy:
    return replace(step, whom=tuple(shown(name, sees) for name in step.whom), after=())


def _supposed(found: Supposed, sees: Sees) -> Mapping[str, Any]:
    it = found.found
    return {
        "differences": [_difference(one, found, sees) for one in it.differences],
        "gpusBefore": gpus(it.gpus_before),
        "gpusAfter": gpus(it.gpus_after),
        "waitingBefore": it.waiting_before,
        "waitingAfter": it.waiting_after,
    }


def _difference(one: Difference, found: Supposed, sees: Sees) -> dict[str, Any]:
    name = shown(found.names[one.workload], sees)
    return {
        "name": name.name,
        "project": name.project_name,
        "what": one.what,
        "before": [{"node": node, "gpus": gpus(milli), "tasks": tasks} for node, milli, tasks in one.before],
        "after": [{"node": node, "gpus": gpus(milli), "tasks": tasks} for node, milli, tasks in one.after],
        "reason": one.reason if sees(found.names[one.workload].project) else "",
        "code": one.code,
    }


def _drained(found: Drained, dry_run: bool, sees: Sees) -> dict[str, Any]:
    told = [(shown(name, sees), what) for name, what in found.workloads]
    return {
        "nodes": list(found.nodes),
        "workloads": [{"name": name.name, "project": name.project_name, "what": what} for name, what in told],
        "dryRun": dry_run,
    }
