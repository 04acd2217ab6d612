"""Pods: one for each task that was started or may still be; of one workload, or of all."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Response

from pliant.api.auth import Caller
from pliant.api.context import Here
from pliant.api.guard import needs, workload
from pliant.api.listing import Listing
from pliant.api.responses.encoding import answer, answers
from pliant.api.routes.workloads import Asked, everything, find
from pliant.wire.workload import Counted, PodItem, PodList

router = APIRouter(prefix="/api/v1/workloads", tags=["workloads"])


def _member(name: str) -> Callable[[PodItem], Any]:
    return lambda item: item[name]  # type: ignore[literal-required]  # one of those below


_pods: Listing[PodItem] = Listing(
    {
        name: _member(name)
        for name in ("name", "status", "nodeName", "createdAt", "workloadId", "workloadName", "projectId")
    }
)


@router.get("/pods", dependencies=[needs("workloads:read")], **answers(200, PodList))
def all_pods(here: Here, caller: Caller, asked: Asked) -> Response:
    """Those of all workloads, in the order of submission."""
    renderer = here.renderer(caller)
    items = [
        item
        for view in everything(here, caller, renderer.board, False)
        for item in renderer.pods(view, here.service.attempts(view.workload.id))
    ]
    return answer(_pods.page("pods", items, asked, lambda item: item))


@router.get("/pods/count", dependencies=[needs("workloads:read")], **answers(200, Counted))
def count_pods(here: Here, caller: Caller, asked: Asked) -> Response:
    renderer = here.renderer(caller)
    views = everything(here, caller, renderer.board, False)
    items = [it for view in views for it in renderer.pods(view, here.service.attempts(view.workload.id))]
    return answer(_pods.count(items, asked))


@router.get("/{identity}/pods", dependencies=[needs("workloads:read", workload)], **answers(200, PodList))
def pods(identity: str, here: Here, caller: Caller, asked: Asked) -> Response:
    renderer = here.renderer(caller)
    view = find(here, identity, renderer.board)
    items = renderer.pods(view, here.service.attempts(identity))
    return answer(_pods.page("pods", items, asked, lambda item: item))
