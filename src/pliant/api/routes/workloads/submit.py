"""Routes that submit workloads; each Idempotency-Key gets one answer."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Header, Query, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import TypeAdapter

from pliant.api.context import Context, Here
from pliant.api.errors import Forbidden, NoAccount
from pliant.api.guard import about, check, demand_in_project, needs, workload
from pliant.api.identity.auth import Caller
from pliant.api.identity.principal import Principal
from pliant.api.late import Router
from pliant.api.redaction import own_too, shown, sight
from pliant.api.requests.completion import complete, overlaid, unsealed
from pliant.api.requests.parse_submission import parse_submission
from pliant.api.responses.amounts import gpus
from pliant.api.responses.encoding import answer, answers, described, encode
from pliant.api.responses.spec import spec_of, submitted
from pliant.api.responses.workloads import reason_item
from pliant.api.routes.workloads.workloads import typed
from pliant.api.schemas.models import Received
from pliant.control.audit import unchanged
from pliant.control.board.view import Board, WorkloadView
from pliant.control.errors import Conflict, Refused
from pliant.control.explain.rehearsal import Rehearsal
from pliant.control.submit.submission import Accepted, Checked, Submission
from pliant.control.submit.workload import changed
from pliant.control.usecases.submissions import PATIENCE, Sent
from pliant.model.reason import MayRead, Named
from pliant.model.workload import Kind
from pliant.wire.questions import Verdict
from pliant.wire.submission import AnySubmission, Distributed, Inference, InferenceChange, Submitted
from pliant.wire.submission import Submission as Training

router = Router(prefix="/api/v1/workloads", tags=["workloads"])

NEVER = "never-fits"
"""Reason code of a workload that no node can ever hold."""

# -- one answer for one key -------------------------------------------------------------------------


def fingerprint(kind: Kind, body: AnySubmission) -> str:
    """The same text for equal submissions."""
    text = json.dumps([kind.value, body], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


async def accept(here: Context, body: AnySubmission, kind: Kind, caller: Principal, key: str) -> Response:
    """Submit a workload, or give this key's answer again; Repeats passes requests with one key in turn.

    No thread waits for the disk: while many submissions wait, other requests are answered.
    """
    mark = ""
    if key:
        key, mark = f"{caller.subject} {key}", fingerprint(kind, body)  # each caller has its own keys
        before = await run_in_threadpool(here.service.remembered, key)
        if before is not None:
            if before.fingerprint != mark:
                raise Conflict(
                    "This Idempotency-Key was used for another submission.", "Use a new key for each."
                )
            unchanged()
            return Response(before.body, before.status, media_type="application/json")
    sent, told = await run_in_threadpool(_begun, here, body, kind, caller, key, mark)
    try:
        accepted = await asyncio.wait_for(asyncio.wrap_future(sent.answer), PATIENCE)
    except Refused:
        await run_in_threadpool(sent.take_back)
        raise
    return Response(told(accepted), 202, media_type="application/json")


def _asked(here: Context, body: AnySubmission, kind: Kind, caller: Principal) -> tuple[Submission, list[str]]:
    """The submission and its notices. The right is checked first: errors would tell others of policies."""
    board = here.service.board
    key = body.get("projectId") or body.get("projectName") or ""
    demand_in_project(caller, "workloads:create", key, board, "projectId")
    whole = unsealed(complete(body, kind, board), board, here.authority.vault)
    asked, vain = parse_submission(whole, kind, board)
    if caller.box and caller.account is not None:  # the machine isolates no GPU fractions between users
        asked = replace(asked, card_owner=str(caller.account.uid))
    return asked, vain


def _begun(
    here: Context, body: AnySubmission, kind: Kind, caller: Principal, key: str, mark: str
) -> tuple[Sent, Callable[[Accepted], bytes]]:
    """The submission on its way, and what renders the answer once it is on disk."""
    service = here.service
    asked, vain = _asked(here, body, kind, caller)
    owner = caller.as_owner()
    if owner is None:
        raise NoAccount(
            f"{caller.user} has no account on this machine, as whom jobs could run.",
            "An administrator binds one: pliant user bind NAME --account ACCOUNT",
        )
    if caller.box and body.get("submittedBy") not in (None, "", caller.person):
        raise Forbidden(
            f"You are {caller.person} and cannot submit in the name of another user.",
            "Leave submittedBy out.",
        )
    checked = _checked(here, asked)

    def render(accepted: Accepted) -> bytes:
        notices = [*checked.notices, *vain]
        if accepted.reason is not None and accepted.reason.code == NEVER:
            notices.append(accepted.reason.text(service.now()))
        return encode(
            submitted(accepted.workload, service.board, notices, body.get("name"), accepted.elements)
        )

    sent = service.send(
        checked,
        _submitter(body, caller),
        owner=owner,
        key=key,
        fingerprint=mark,
        render=lambda accepted: (202, render(accepted).decode()),
    )
    return sent, render


def _checked(here: Context, asked: Submission) -> Checked:
    checked = here.service.check(asked)
    here.bounds.check_tasks(sum(group.max for group in checked.workload.groups))
    return checked


def _submitter(body: AnySubmission, caller: Principal) -> str:
    return (body.get("submittedBy") if caller.owner else "") or caller.person


def rehearse(here: Context, body: AnySubmission, kind: Kind, caller: Principal) -> Response:
    asked, vain = _asked(here, body, kind, caller)
    checked = _checked(here, asked)
    result = here.service.rehearse(checked, _submitter(body, caller))
    sees = sight(here.service.board, caller)
    return answer(verdict(result, here.service.board, [*checked.notices, *vain], here.service.now(), sees))


def verdict(result: Rehearsal, board: Board, notices: Sequence[str], now: int, may_read: MayRead) -> Verdict:
    never = result.reason is not None and result.reason.code == NEVER
    return {
        "verdict": "starts" if result.placements else "never" if never else "waits",
        "reason": reason_item(result.reason, now, own_too(may_read, result.workload.project)),
        "placements": [
            {
                "pod": f"{result.workload.name}-{task}",
                "node": place.node,
                "gpu": gpus(place.gpu),
                "gpus": list(place.uuids),
            }
            for task, place in result.placements
        ],
        "disrupted": [
            {
                "id": decision.workload if may_read(view.project.id) else "",
                "name": name,
                "project": project,
                "verb": decision.verb.value,
                "gpuBefore": gpus(decision.gpu_before),
                "gpuAfter": gpus(decision.gpu_after),
                "reason": reason_item(decision.reason, now, may_read),
            }
            for decision in result.disrupted
            if (view := board.workloads.get(decision.workload)) is not None
            for name, project in (_named(view, may_read),)
        ],
        "notices": list(notices),
    }


def _named(view: WorkloadView, may_read: MayRead) -> tuple[str, str]:
    row, project = view.workload, view.project
    return shown(Named("workload", row.id, row.name, project.id, project.name), may_read)


Key = Annotated[str, Header(alias="Idempotency-Key", max_length=255, pattern=r"^[\x21-\x7e]*$")]
DryRun = Annotated[
    bool, Query(alias="dryRun", description="Return the scheduler's decision; submit nothing.")
]


def _posting(kind: Kind, sent: Any, about: str) -> Callable[..., Awaitable[Response]]:
    async def post(body: Any, here: Here, caller: Caller, key: Key = "", dry_run: DryRun = False) -> Response:
        if caller.box:
            here.pace.take(caller.person)
        if dry_run:
            return await run_in_threadpool(rehearse, here, body, kind, caller)
        return await accept(here, body, kind, caller, key)

    received: Any = Received
    post.__annotations__["body"] = received[sent]
    post.__doc__ = about
    return post


@router.patch(
    "/inferences/{identity}", dependencies=[needs("workloads:update", workload)], **answers(202, Submitted)
)
def change_inference(identity: str, body: Received[InferenceChange], here: Here, caller: Caller) -> Response:
    """Change one that is suspended: it starts like that when it is resumed.

    What it runs is changed only by those who may run commands in it.
    """
    row, board = typed(here, identity, Kind.INFERENCE).workload, here.service.board
    whole = TypeAdapter[Inference](Received[Inference]).validate_python(
        {"projectId": row.project, "name": row.name, "spec": overlaid(spec_of(row), body["spec"])}
    )
    asked, notices = parse_submission(complete(whole, Kind.INFERENCE, board), Kind.INFERENCE, board)
    if caller.box and row.owner is not None:
        asked = replace(asked, card_owner=str(row.owner.uid))
    checked = _checked(here, asked)
    if changed(row, checked, board.settings.share_across_users).launch != row.launch:
        check(caller, "workloads:exec", about(row, identity, board, caller))
    made = here.service.change(identity, checked, caller.user)
    told = [*checked.notices, *notices]
    return answer(submitted(made, here.service.board, told, inside=caller.inside(made)), 202)


_ONE = "Answers 202 once the workload is on disk. A repeated Idempotency-Key returns the same workload."
_SEVERAL = "The same for several tasks that work together: all of its core start at once, or none."
_SERVICE = "The same for a service of equal replicas. There is no autoscaling yet."
_creates = needs("workloads:create")
for _plural, _kind, _sent, _about in (
    ("trainings", Kind.TRAINING, Training, _ONE),
    ("workspaces", Kind.WORKSPACE, Training, _ONE),
    ("distributed", Kind.DISTRIBUTED, Distributed, _SEVERAL),
    ("inferences", Kind.INFERENCE, Inference, _SERVICE),
):
    _told: dict[str, Any] = answers(202, Submitted)
    _told["responses"][200] = described(Verdict, "With dryRun=true")
    _made = _posting(_kind, _sent, _about)
    router.post(f"/{_plural}", name=f"create_{_kind.value.lower()}", dependencies=[_creates], **_told)(_made)
