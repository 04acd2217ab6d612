"""From the body of a submission to what the service takes, and the answer that is given once for each key."""

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from pliant.api.auth import Caller, Principal
from pliant.api.context import Context, Here
from pliant.api.models import Received, answer_type
from pliant.api.requests.parse_submission import parse_submission
from pliant.api.responses.amounts import gpus
from pliant.api.responses.encoding import answer, answers, encode
from pliant.api.responses.workloads import reason_item, submitted
from pliant.control.board.view import Board
from pliant.control.errors import Conflict
from pliant.control.explain.rehearsal import Rehearsal
from pliant.control.submit.submission import Accepted
from pliant.model.workload import Kind
from pliant.wire.questions import Verdict
from pliant.wire.submission import AnySubmission, Distributed, Inference, Submission, Submitted

router = APIRouter(prefix="/api/v1/workloads", tags=["workloads"])

NEVER = "never-fits"
"""Code of the reason of what no node can ever hold."""

# -- one answer for one key -------------------------------------------------------------------------


class Turns:
    """Lets requests with the same key pass one after another."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held: dict[str, tuple[threading.Lock, int]] = {}  # key -> (its lock, how many hold or want it)

    @contextmanager
    def of(self, key: str) -> Iterator[None]:
        with self._guard:
            lock, wanted = self._held.get(key, (threading.Lock(), 0))
            self._held[key] = (lock, wanted + 1)
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, wanted = self._held[key]
                if wanted == 1:
                    del self._held[key]
                else:
                    self._held[key] = (lock, wanted - 1)


_turns = Turns()


def fingerprint(kind: Kind, body: AnySubmission) -> str:
    """The same for bodies that say the same."""
    text = json.dumps([kind.value, body], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def accept(here: Context, body: AnySubmission, kind: Kind, caller: Principal, key: str) -> Response:
    """Submit it, or give the answer again that this key was given before."""
    if not key:
        return Response(_submit(here, body, kind, caller, "", ""), 202, media_type="application/json")
    mark = fingerprint(kind, body)
    with _turns.of(key):
        before = here.service.remembered(key)
        if before is None:
            return Response(_submit(here, body, kind, caller, key, mark), 202, media_type="application/json")
    if before.fingerprint != mark:
        raise Conflict("This Idempotency-Key was used for another submission.", "Use a new key for each.")
    return Response(before.body, before.status, media_type="application/json")


def _submit(here: Context, body: AnySubmission, kind: Kind, caller: Principal, key: str, mark: str) -> bytes:
    service = here.service
    asked, vain = parse_submission(body, kind, service.board)
    checked = service.check(asked)

    def render(accepted: Accepted) -> bytes:
        notices = [*checked.notices, *vain]
        if accepted.reason is not None and accepted.reason.code == NEVER:
            notices.append(accepted.reason.text(service.now()))
        return encode(submitted(accepted.workload, service.board, notices, body.get("name")))

    user = (body.get("submittedBy") if caller.owner else "") or caller.user
    return render(
        service.submit(
            checked, user, key=key, fingerprint=mark, render=lambda accepted: (202, render(accepted).decode())
        )
    )


def rehearse(here: Context, body: AnySubmission, kind: Kind) -> Response:
    asked, vain = parse_submission(body, kind, here.service.board)
    checked = here.service.check(asked)
    result = here.service.rehearse(checked)
    return answer(verdict(result, here.service.board, [*checked.notices, *vain], here.service.now()))


def verdict(result: Rehearsal, board: Board, notices: Sequence[str], now: int) -> Verdict:
    never = result.reason is not None and result.reason.code == NEVER
    return {
        "verdict": "starts" if result.placements else "never" if never else "waits",
        "reason": reason_item(result.reason, now),
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
                "id": decision.workload,
                "name": view.workload.name,
                "project": view.project.name,
                "verb": decision.verb.value,
                "gpuBefore": gpus(decision.gpu_before),
                "gpuAfter": gpus(decision.gpu_after),
                "reason": reason_item(decision.reason, now),
            }
            for decision in result.disrupted
            if (view := board.workloads.get(decision.workload)) is not None
        ],
        "notices": list(notices),
    }


Key = Annotated[str, Header(alias="Idempotency-Key", max_length=255, pattern=r"^[\x21-\x7e]*$")]
DryRun = Annotated[
    bool, Query(alias="dryRun", description="Return the scheduler's decision; submit nothing.")
]


def _posting(kind: Kind, sent: Any, about: str) -> Callable[..., Response]:
    def post(body: Any, here: Here, caller: Caller, key: Key = "", dry_run: DryRun = False) -> Response:
        return rehearse(here, body, kind) if dry_run else accept(here, body, kind, caller, key)

    received: Any = Received
    post.__annotations__["body"] = received[sent]
    post.__doc__ = about
    return post


_ONE = "Answers 202 once the workload is on disk. The same Idempotency-Key makes the same workload."
_SEVERAL = "The same for several tasks that work together: all of its core start at once, or none."
_SERVICE = "The same for a service of equal replicas. There is no autoscaling yet."
for _plural, _kind, _sent, _about in (
    ("trainings", Kind.TRAINING, Submission, _ONE),
    ("workspaces", Kind.WORKSPACE, Submission, _ONE),
    ("distributed", Kind.DISTRIBUTED, Distributed, _SEVERAL),
    ("inferences", Kind.INFERENCE, Inference, _SERVICE),
):
    _told: dict[str, Any] = answers(202, Submitted)
    _told["responses"][200] = {"model": answer_type(Verdict), "description": "With dryRun=true"}
    _made = _posting(_kind, _sent, _about)
    router.post(f"/{_plural}", name=f"create_{_kind.value.lower()}", **_told)(_made)
