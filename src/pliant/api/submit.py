"""From the body of a submission to what the service takes, and the answer that is given once for each key."""

import hashlib
import json
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from pliant.api import shapes
from pliant.api.answers import answer, answers, encode
from pliant.api.auth import Caller, Principal
from pliant.api.bodies import Compute, Pair, Spec, Submit
from pliant.api.context import Context, Here
from pliant.api.render import Item, gpus, reason_item, submitted
from pliant.control.errors import BadRequest, Conflict, NotFound
from pliant.control.ports import Remembered
from pliant.control.rehearsal import Rehearsal
from pliant.control.submission import Submission
from pliant.control.view import Board
from pliant.model.quantity import parse_bytes
from pliant.model.workload import Kind, Launch, Workload

router = APIRouter(prefix="/api/v1/workloads", tags=["workloads"])

NEVER = "never-fits"
"""Code of the reason of what no node can ever hold."""

QUIET = frozenset({"imagePullPolicy", "createHomeDir", "templateId", "useGivenNameAsPrefix"})
"""Fields that do nothing here and of which nobody has to be told."""


# -- reading a body ---------------------------------------------------------------------------------


def submission(body: Submit, kind: Kind, board: Board) -> tuple[Submission, list[str]]:
    """What is asked for, and notices about what was asked for in vain."""
    spec, compute = body.spec, body.spec.compute or Compute()
    project = body.projectId or body.projectName
    if not project:
        raise BadRequest("It is not said in which project.", "Set projectId (its id or name) or projectName.")
    cluster = board.cluster.uuid if board.cluster is not None else ""
    if body.clusterId and body.clusterId != cluster:
        raise NotFound(f"There is no cluster {body.clusterId!r}.", f"This one is {cluster}; or leave it out.")
    _check_kind(compute)
    prefixed = body.useGivenNameAsPrefix or body.nameBase is not None
    ask = Submission(
        project=project,
        launch=_launch(spec),
        kind=kind,
        name=None if prefixed else body.name,
        name_base=body.nameBase or body.name if prefixed else None,
        name_index=body.nameStyle == "index",
        gpus=_milli(compute.gpuDevicesRequest, "gpuDevicesRequest"),
        portion=_milli(compute.gpuPortionRequest, "gpuPortionRequest"),
        gpu_memory=_bytes(compute.gpuMemoryRequest, "gpuMemoryRequest"),
        portion_limit=_milli(compute.gpuPortionLimit, "gpuPortionLimit"),
        gpu_memory_limit=_bytes(compute.gpuMemoryLimit, "gpuMemoryLimit"),
        cpu=_milli(compute.cpuCoreRequest, "cpuCoreRequest"),
        memory=_bytes(compute.cpuMemoryRequest, "cpuMemoryRequest"),
        elastic=spec.elastic,
        elastic_doubling=spec.elasticDoubling,
        priority=spec.priorityClass or None,
        preemptible=None if spec.preemptibility is None else spec.preemptibility == "preemptible",
        pools=tuple(_pool(pool, board) for pool in spec.nodePools or ()),
        node_type=spec.nodeType or "",
        backoff_limit=spec.backoffLimit,
        restart=spec.restartPolicy == "Always",
        terminate_after_preemption=bool(spec.terminateAfterPreemption),
        ttl=_ms(spec.autoDeletionTimeAfterCompletionSeconds),
        category=spec.category or "",
        source=body.source or "Control-plane",
        labels=_pairs(spec.labels),
        annotations=_pairs(spec.annotations),
    )
    return ask, _in_vain(body, compute)


def _check_kind(compute: Compute) -> None:
    """The kind of request that is stated must be the one that is made."""
    kind = compute.gpuRequestType
    if kind == "memory" and compute.gpuMemoryRequest is None:
        raise BadRequest(
            "spec.compute.gpuRequestType is memory, but no memory is asked for.", "Set gpuMemoryRequest."
        )
    if kind == "memory" and compute.gpuPortionRequest is not None:
        raise BadRequest(
            "spec.compute.gpuRequestType is memory, but a portion is asked for.",
            "Leave out gpuPortionRequest.",
        )
    if kind == "portion" and compute.gpuMemoryRequest is not None:
        raise BadRequest(
            "spec.compute.gpuRequestType is portion, but memory is asked for.", "Leave out gpuMemoryRequest."
        )
    if compute.extendedResources:
        raise BadRequest("spec.compute.extendedResources cannot be had here.", "Leave it out.")


def _launch(spec: Spec) -> Launch:
    return Launch(
        image=spec.image or "",
        command=_words(spec.commandArgv, spec.command, "command"),
        args=_words(spec.argsArgv, spec.args, "args"),
        env=_variables(spec.environmentVariables or ()),
        working_dir=spec.workingDir or "",
        tty=bool(spec.tty),
        stdin=bool(spec.stdin),
        **({} if (grace := _ms(spec.terminationGracePeriodSeconds)) is None else {"grace": grace}),
    )


def _words(exact: Sequence[str] | None, text: str | None, field: str) -> tuple[str, ...]:
    if exact is not None:
        return tuple(exact)
    try:
        return tuple(shlex.split(text or ""))
    except ValueError as error:
        raise BadRequest(
            f"spec.{field} cannot be split into words: {error}.",
            "Close every quote, or send commandArgv and argsArgv.",
        ) from error


def _variables(given: Sequence[Pair]) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for entry in given:
        if entry.exclude:
            continue
        if entry.value is None:
            raise BadRequest(
                f"The environment variable {entry.name!r} has no value.",
                "Only plain values can be given: secrets, config maps and fields cannot be read here.",
            )
        found[entry.name] = entry.value
    return tuple(found.items())


def _pairs(given: Sequence[Pair] | None) -> tuple[tuple[str, str], ...]:
    return tuple(
        sorted({entry.name: entry.value or "" for entry in given or () if not entry.exclude}.items())
    )


def _milli(value: float | None, field: str) -> int | None:
    """Thousandths, if there are no smaller parts."""
    if value is None:
        return None
    milli = Decimal(repr(value)) * 1000
    if milli != milli.to_integral_value():
        raise BadRequest(f"spec.compute.{field} is {value!r}: at most three decimals are possible.")
    return int(milli)


def _bytes(value: str | None, field: str) -> int | None:
    if value is None:
        return None
    try:
        amount = parse_bytes(value)
    except ValueError as error:
        raise BadRequest(f"spec.compute.{field}: {error}.") from error
    if amount >= 2**62:
        raise BadRequest(f"spec.compute.{field}: {value} is more than any machine has.")
    return amount


def _ms(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * 1000


def _pool(key: str, board: Board) -> str:
    """The pool's name where its id was given; who asks for one that does not exist is told by the service."""
    return next((pool.name for pool in board.pools if key == pool.id), key)


def _in_vain(body: Submit, compute: Compute) -> list[str]:
    unknown = [name for name, value in (body.model_extra or {}).items() if value not in (None, [], {}, "")]
    unknown += [
        f"spec.{name}"
        for name, value in (body.spec.model_extra or {}).items()
        if value not in (None, [], {}, "", False)
    ]
    unknown += [
        f"spec.compute.{name}"
        for name in ("cpuCoreLimit", "cpuMemoryLimit", "largeShmRequest")
        if getattr(compute, name)
    ]
    told = sorted(name[:80] for name in unknown if name.removeprefix("spec.") not in QUIET)
    return [f"These fields have no effect here: {', '.join(told[:20])}."] if told else []


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


def fingerprint(kind: Kind, body: Submit) -> str:
    """The same for bodies that say the same."""
    text = json.dumps([kind.value, body.model_dump(exclude_unset=True)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def accept(here: Context, body: Submit, kind: Kind, caller: Principal, key: str) -> Response:
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


def _submit(here: Context, body: Submit, kind: Kind, caller: Principal, key: str, mark: str) -> bytes:
    service = here.service
    ask, vain = submission(body, kind, service.board)
    _, told = service.check(ask)
    notices = [*told, *vain]

    def render(workload: Workload, more: Sequence[str] = ()) -> Item:
        return submitted(workload, service.board, [*notices, *more], body.name)

    user = (body.submittedBy if caller.owner else "") or caller.user
    workload, _ = service.submit(
        ask, user, key=key, fingerprint=mark, render=lambda accepted: (202, encode(render(accepted)).decode())
    )
    view = service.board.workloads.get(workload.id)
    never = view is not None and view.reason is not None and view.reason.code == NEVER
    if not never or view is None or view.reason is None:
        return encode(render(workload))
    final = encode(render(workload, [view.reason.text]))
    if key:  # whoever asks again with this key must read the same
        service.amend(Remembered(key, mark, 202, final.decode(), service.now()))
    return final


def rehearse(here: Context, body: Submit, kind: Kind) -> Response:
    ask, vain = submission(body, kind, here.service.board)
    result, notices = here.service.rehearse(ask)
    return answer(verdict(result, here.service.board, [*notices, *vain]))


def verdict(result: Rehearsal, board: Board, notices: Sequence[str]) -> Item:
    """A wire.Verdict."""
    never = result.reason is not None and result.reason.code == NEVER
    return {
        "verdict": "starts" if result.placements else "never" if never else "waits",
        "reason": reason_item(result.reason),
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
                "reason": reason_item(decision.reason),
            }
            for decision in result.disrupted
            if (view := board.workloads.get(decision.workload)) is not None
        ],
        "notices": list(notices),
    }


Key = Annotated[str, Header(alias="Idempotency-Key", max_length=255, pattern=r"^[\x21-\x7e]*$")]
DryRun = Annotated[bool, Query(alias="dryRun", description="Only say what the scheduler would do.")]


def _posting(kind: Kind) -> Callable[..., Response]:
    def post(body: Submit, here: Here, caller: Caller, key: Key = "", dry_run: DryRun = False) -> Response:
        """Answers 202 once the workload is on disk. The same Idempotency-Key makes the same workload."""
        return rehearse(here, body, kind) if dry_run else accept(here, body, kind, caller, key)

    return post


for _plural, _kind in (("trainings", Kind.TRAINING), ("workspaces", Kind.WORKSPACE)):
    _told: dict[str, Any] = answers(202, shapes.Submitted)
    _told["responses"][200] = {"model": shapes.Verdict, "description": "With dryRun=true"}
    router.post(f"/{_plural}", name=f"create_{_kind.value.lower()}", **_told)(_posting(_kind))
