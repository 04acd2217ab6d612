"""Routes for pods, of one workload or of all: one for each task that was started or may still be."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Annotated, Any

from fastapi import Depends, Response

from pliant.api.context import Context, Here
from pliant.api.guard import needs, workload
from pliant.api.identity.auth import Caller
from pliant.api.late import Router
from pliant.api.listing import Listing, Window
from pliant.api.responses.encoding import answer, answers
from pliant.api.responses.workloads import Renderer
from pliant.api.routes.workloads.workloads import everything, find
from pliant.control.board.view import WorkloadView
from pliant.model.workload import Attempt
from pliant.wire.workload import Counted, PodItem, PodList

router = Router(prefix="/api/v1/workloads", tags=["workloads"])


def _member(name: str) -> Callable[[PodItem], Any]:
    return lambda item: item[name]  # type: ignore[literal-required]  # one of those below


_pods: Listing[PodItem] = Listing(
    {
        name: _member(name)
        for name in ("name", "status", "nodeName", "createdAt", "workloadId", "workloadName", "projectId")
    }
)
Asked = Annotated[Window, Depends(_pods.asked)]


@router.get("/pods", dependencies=[needs("workloads:read")], **answers(200, PodList))
def all_pods(here: Here, caller: Caller, asked: Asked) -> Response:
    """Those of all workloads, in the order of submission."""
    renderer = here.renderer(caller)
    views = everything(here, caller, renderer.board, False)
    if not asked.whole:
        return answer(_pods.page("pods", _items(here, renderer, views), asked, lambda item: item))
    ends = list(accumulate(len(view.pods) for view in views))
    first, end = bisect_right(ends, asked.offset), asked.offset + asked.limit
    items = _items(here, renderer, views[first : bisect_left(ends, end) + 1])
    before = ends[first - 1] if first else 0
    body: dict[str, Any] = {"pods": items[asked.offset - before : end - before]}
    if views and end < ends[-1]:
        body["next"] = end
    return answer(body)


@router.get("/pods/count", dependencies=[needs("workloads:read")], **answers(200, Counted))
def count_pods(here: Here, caller: Caller, asked: Asked) -> Response:
    renderer = here.renderer(caller)
    views = everything(here, caller, renderer.board, False)
    if asked.whole:
        return answer({"count": sum(len(view.pods) for view in views)})
    return answer(_pods.count(_items(here, renderer, views), asked))


def _items(here: Context, renderer: Renderer, views: Sequence[WorkloadView]) -> list[PodItem]:
    """The pods of several workloads, with one query of the store."""
    attempts: dict[str, list[Attempt]] = {view.workload.id: [] for view in views}
    for row in here.service.attempts(*attempts):
        attempts[row.id.workload].append(row)
    return [item for view in views for item in renderer.pods(view, attempts[view.workload.id])]


@router.get("/{identity}/pods", dependencies=[needs("workloads:read", workload)], **answers(200, PodList))
def pods(identity: str, here: Here, caller: Caller, asked: Asked) -> Response:
    renderer = here.renderer(caller)
    view = find(here, identity, renderer.board)
    items = renderer.pods(view, here.service.attempts(identity))
    return answer(_pods.page("pods", items, asked, lambda item: item))
