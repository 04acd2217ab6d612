"""The kinds of custom resources: how their specs change rows, and what their status shows."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from functools import partial
from operator import eq
from typing import Any, Protocol

from lightkube.generic_resource import create_global_resource, create_namespaced_resource

from pliant.control.board.view import Board, QueueView, WorkloadView
from pliant.control.errors import BadRequest
from pliant.control.ports import Row
from pliant.control.service import Service
from pliant.control.submit.submission import Submission
from pliant.control.usecases.changes import QueueChange, QuotaChange
from pliant.control.usecases.tenancy import DEFAULT
from pliant.engines.kube.apiserver.names import WORKLOAD as WORKLOAD_ID
from pliant.engines.kube.apiserver.names import namespace_of
from pliant.engines.kube.apiserver.quantities import bytes_of, millicores_of
from pliant.model.machine import NodePool, Strategy
from pliant.model.origin import Origin
from pliant.model.quantity import parse_duration, plain
from pliant.model.tenancy import UNLIMITED
from pliant.model.workload import Desired, Kind, Launch, Phase, Workload

GROUP, VERSION = "pliant.dev", "v1alpha1"
USER = "kubectl"
"""The user, in the history of rows, for changes that objects on the cluster ask for."""

FINALIZER = f"{GROUP}/row"
"""Keeps a deleted object until its row is gone."""

Json = Mapping[str, Any]

DEPARTMENT = create_global_resource(GROUP, VERSION, "Department", "departments")
PROJECT = create_global_resource(GROUP, VERSION, "Project", "projects")
POOL = create_global_resource(GROUP, VERSION, "NodePool", "nodepools")
WORKLOAD = create_namespaced_resource(GROUP, VERSION, "Workload", "workloads")


class Sort(Protocol):
    """One kind. A place is a namespace (empty for kinds without one) and a name."""

    kind: Any  # of lightkube

    def rows(self, board: Board) -> Iterator[tuple[tuple[str, str], object]]:
        """(place, value) of all rows; the value is unequal to the last one if the row has changed."""

    def owner(self, namespace: str, name: str) -> str | None:
        """The object that alone may change the row of that place; empty: none; None: there is no row."""

    def apply(self, namespace: str, name: str, spec: Json, status: Json) -> None:
        """Raises Refused."""

    def delete(self, namespace: str, name: str, body: Json) -> bool:
        """Deletes the row, because the object is going; True once nothing is left of it. Raises Refused."""

    def made(self, namespace: str, name: str) -> Json | None:
        """Metadata, besides the name, of an object without a spec; None: the row is ending, so no object is
        made."""

    def row(self, namespace: str, name: str) -> Row | None:
        """The row to record on the object, for an empty database; None: it is not recorded."""

    def release(self, namespace: str, name: str) -> None:
        """Called when the object is gone and the row is still needed."""

    def status(self, namespace: str, name: str) -> dict[str, Any]: ...


def resource_of(kind: Any, name: str) -> str:
    """As kubectl names it, e.g. projects.pliant.dev/a."""
    return f"{kind._api_info.plural}.{GROUP}/{name}"


class Queues:
    """Departments, or projects."""

    def __init__(self, service: Service, *, projects: bool) -> None:
        self._service, self._projects = service, projects
        self.kind: Any = PROJECT if projects else DEPARTMENT

    def _views(self, board: Board) -> Mapping[str, QueueView]:
        return board.projects if self._projects else board.departments

    def rows(self, board: Board) -> Iterator[tuple[tuple[str, str], object]]:
        return ((("", view.queue.name), view) for view in self._views(board).values())

    def _view(self, name: str) -> QueueView | None:
        views = self._views(self._service.board).values()
        return next((view for view in views if view.queue.name == name), None)

    def owner(self, namespace: str, name: str) -> str | None:
        view = self._view(name)
        return None if view is None else view.queue.origin

    def apply(self, namespace: str, name: str, spec: Json, status: Json) -> None:
        service, view = self._service, self._view(name)
        before = [pool for pool, _ in view.queue.quotas] if view is not None else []
        named = {each["name"]: quota_of(each) for each in spec.get("nodePools", ())}
        unset = () if view is not None and getattr(view.queue, "derived", False) else before
        above = spec.get("department", DEFAULT) if self._projects else spec.get("parent", "")
        change = QueueChange(
            name=name,
            quotas=tuple(sorted({**{pool: quota_of({}) for pool in unset}, **named}.items())),
            description=spec.get("description", ""),
            department=above,
            default_pools=tuple(spec.get("defaultNodePools", ())) if self._projects else None,
            origin=resource_of(self.kind, name),
        )
        if view is None:
            (service.create_project if self._projects else service.create_department)(change, USER)
        else:
            update = service.update_project if self._projects else service.update_department
            update(view.queue.id, change, USER)

    def delete(self, namespace: str, name: str, body: Json) -> bool:
        view = self._view(name)
        if view is not None and view.queue.origin:
            if name == DEFAULT:
                self.release(namespace, name)
                return True
            drop = self._service.delete_project if self._projects else self._service.delete_department
            drop(view.queue.id, USER, view.queue.origin)
        return True

    def made(self, namespace: str, name: str) -> Json | None:
        return {}

    def row(self, namespace: str, name: str) -> Row | None:
        view = self._view(name)
        return view.queue if view is not None else None

    def release(self, namespace: str, name: str) -> None:
        update = self._service.update_project if self._projects else self._service.update_department
        update(name, QueueChange(origin=""), USER)

    def status(self, namespace: str, name: str) -> dict[str, Any]:
        view = self._view(name)
        if view is None:
            return {}
        found: dict[str, Any] = {
            "gpuQuota": plain(sum(use.quota for use in view.uses)),
            "gpuAllocated": plain(sum(use.allocated.gpu for use in view.uses)),
            "gpuRequested": plain(sum(use.requested.gpu for use in view.uses)),
            "nodePools": [
                {
                    "name": use.pool,
                    "gpuQuota": plain(use.quota),
                    "gpuAllocated": plain(use.allocated.gpu),
                    "gpuRequested": plain(use.requested.gpu),
                    "gpuFairShare": plain(use.fair_share),
                }
                for use in view.uses
            ],
        }
        if self._projects:
            above = self._service.board.departments.get(getattr(view.queue, "department", ""))
            found["department"] = above.queue.name if above is not None else ""
            found["namespace"] = namespace_of(name)
        return found


class Pools:
    def __init__(self, service: Service) -> None:
        self._service = service
        self.kind: Any = POOL

    def rows(self, board: Board) -> Iterator[tuple[tuple[str, str], object]]:
        return ((("", pool.name), (pool, self._shown(pool.name))) for pool in board.pools)

    def owner(self, namespace: str, name: str) -> str | None:
        return next((pool.origin for pool in self._service.board.pools if pool.name == name), None)

    def apply(self, namespace: str, name: str, spec: Json, status: Json) -> None:
        there = self.owner(namespace, name) is not None
        act = self._service.update_pool if there else self._service.create_pool

        def change(pool: NodePool) -> NodePool:
            return replace(
                pool,
                label_key=spec["labelKey"],
                label_value=spec["labelValue"],
                gpu_strategy=Strategy(spec.get("gpuPlacement", Strategy.PACK)),
                cpu_strategy=Strategy(spec.get("cpuPlacement", Strategy.PACK)),
                min_runtime=parse_duration(spec.get("minRuntime", "0")),
            )

        act(name, change, USER, resource_of(POOL, name))

    def delete(self, namespace: str, name: str, body: Json) -> bool:
        origin = self.owner(namespace, name)
        if origin:
            self._service.delete_pool(name, USER, origin)
        return True

    def made(self, namespace: str, name: str) -> Json | None:
        return {}

    def row(self, namespace: str, name: str) -> Row | None:
        return next((pool for pool in self._service.board.pools if pool.name == name), None)

    def release(self, namespace: str, name: str) -> None:
        self._service.update_pool(name, lambda pool: pool, USER, "")

    def status(self, namespace: str, name: str) -> dict[str, Any]:
        return self._shown(name)

    def _shown(self, name: str) -> dict[str, Any]:
        nodes = [view for view in self._service.board.nodes if view.pool == name]
        return {
            "nodes": len(nodes),
            "gpus": sum(len(view.gpus) for view in nodes),
            "gpuAllocated": plain(sum(view.used.gpu for view in nodes)),
        }


class Works:
    """Workloads: those with a spec, and all others with a status only. A deleted workload is shown until it
    is gone, or another one has its name."""

    def __init__(self, service: Service, engine: str) -> None:
        self._service, self._engine = service, engine
        self.kind: Any = WORKLOAD

    def rows(self, board: Board) -> Iterator[tuple[tuple[str, str], object]]:
        for view in sorted(board.workloads.values(), key=_lives):
            yield (namespace_of(view.project.name), view.workload.name), view

    def _views(self, namespace: str, name: str) -> list[WorkloadView]:
        """Workloads of that name: first those that are ending, last the one that has the name now."""
        named = self._service.board.workloads.named(name)
        return sorted((it for it in named if namespace_of(it.project.name) == namespace), key=_lives)

    def _view(self, namespace: str, name: str) -> WorkloadView | None:
        return next(reversed(self._views(namespace, name)), None)

    def owner(self, namespace: str, name: str) -> str | None:
        view = self._view(namespace, name)
        if view is None:
            return None
        mine = view.workload.origin == self._origin(namespace, name)
        return resource_of(WORKLOAD, name) if mine else ""

    def _origin(self, namespace: str, name: str) -> Origin:
        return Origin(self._engine, f"Workload.{GROUP}", namespace, name, makes=False)

    def apply(self, namespace: str, name: str, spec: Json, status: Json) -> None:
        view = self._view(namespace, name)
        if view is not None and _lives(view) and view.workload.origin == self._origin(namespace, name):
            return
        if status.get("phase") in (Phase.COMPLETED, Phase.FAILED):
            return  # it has ended and its row was deleted: it does not run again
        board = self._service.board
        names = (view.queue.name for view in board.projects.values())
        project = next((each for each in names if namespace_of(each) == namespace), None)
        if project is None:
            raise BadRequest(
                f"Namespace {namespace} belongs to no project.",
                "Create the workload in the namespace of its project: kubectl get projects -o wide.",
            )
        gpus = spec.get("gpus", 0)
        ask = Submission(
            project,
            Launch(spec["image"], tuple(spec.get("command", ())), args=tuple(spec.get("args", ()))),
            Kind(spec.get("type", Kind.TRAINING)),
            name,
            gpus=1000 * gpus if gpus else None,
            cpu=millicores_of(spec["cpu"]) if "cpu" in spec else None,
            memory=bytes_of(spec["memory"]) if "memory" in spec else None,
            priority=spec.get("priorityClassName"),
            preemptible=spec.get("preemptible"),
            source="Kubernetes",
            fields={"origin": self._origin(namespace, name)},
        )
        self._service.submit(self._service.check(ask), USER)

    def delete(self, namespace: str, name: str, body: Json) -> bool:
        """Also compares origin or id: another workload may have the name by now."""
        origin = self._origin(namespace, name) if "spec" in body else None
        identity = identity_of(body)
        mine = (
            view
            for view in self._views(namespace, name)
            if view.workload.origin == origin and (origin is not None or view.workload.id == identity)
        )
        view = next(mine, None)
        if view is not None and _lives(view):
            self._service.delete(view.workload.id, USER, origin=origin)
        return view is None

    def made(self, namespace: str, name: str) -> Json | None:
        view = self._view(namespace, name)
        if view is None or not _lives(view):
            return None
        return made_of(view.workload)

    def row(self, namespace: str, name: str) -> Row | None:
        """None for workloads that others made, and for those that are ending: their status says so."""
        view = self._view(namespace, name)
        return view.workload if view is not None and _lives(view) and view.workload.origin is None else None

    def release(self, namespace: str, name: str) -> None:
        """Does nothing: what kubectl has deleted is deleted."""

    def status(self, namespace: str, name: str) -> dict[str, Any]:
        view = self._view(namespace, name)
        if view is None:
            return {}
        row = view.workload
        wanted = sum(group.at_once or group.wanted for group in row.groups)
        return {
            "phase": row.phase.value,
            "why": self._why(view),
            "id": row.id,
            "type": row.kind.value,
            "project": view.project.name,
            "origin": str(row.origin or ""),
            "pods": f"{view.running}/{wanted}",
            "nodes": ",".join(view.nodes[:5]),
            "gpuAllocated": plain(view.gpu),
            "gpuRequested": plain(view.asked),
        }

    def _why(self, view: WorkloadView) -> str:
        if view.workload.phase.final:
            return view.workload.phase_message
        if view.reason is None or not (view.lacks or view.workload.held):
            return ""
        return view.reason.seen_by(partial(eq, view.project.id)).text(self._service.now())


def _lives(view: WorkloadView) -> bool:
    return view.workload.desired is not Desired.DELETED


def made_of(row: Workload) -> dict[str, Any]:
    """Metadata of its object besides the name; no finalizer for workloads that others made and delete."""
    labels = {"labels": {WORKLOAD_ID: row.id}}
    return labels if row.origin is not None else {**labels, "finalizers": [FINALIZER]}


def row_of(sort: Sort, namespace: str, name: str, more: Json) -> Row | None:
    """The row to record on its object; `more` is what `made` returned. Pods of others, of which there are
    thousands, are not even looked up."""
    return sort.row(namespace, name) if not namespace or "finalizers" in more else None


def identity_of(body: Json) -> str:
    """Id of the workload that an object without a spec shows, or was made for."""
    labels = body["metadata"].get("labels") or {} if "metadata" in body else {}
    return str(body.get("status", {}).get("id") or labels.get(WORKLOAD_ID, ""))


def quota_of(pool: Json) -> QuotaChange:
    """The quotas of a pool's entry; fields that it leaves out get their defaults."""

    def thousandths(field: str, unsaid: int) -> int:
        return _exact(pool[field], field) if field in pool else unsaid

    def amount(field: str, read: Any) -> int:
        return int(read(pool[field])) if field in pool else UNLIMITED

    return QuotaChange(
        gpu=thousandths("gpuQuota", 0),
        gpu_limit=thousandths("gpuLimit", UNLIMITED),
        weight=thousandths("gpuWeight", UNLIMITED),
        rank=100,
        cpu=amount("cpuQuota", millicores_of),
        cpu_limit=amount("cpuLimit", millicores_of),
        memory=amount("memoryQuota", bytes_of),
        memory_limit=amount("memoryLimit", bytes_of),
        reclaim_min_runtime=UNLIMITED,
        preempt_min_runtime=UNLIMITED,
    )


def _exact(number: Any, field: str) -> int:
    """Thousandths of a GPU, from a number in JSON. Raises BadRequest."""
    milli = Decimal(str(number)) * 1000
    if milli != int(milli):
        raise BadRequest(f"{field} is {number}.", "Give thousandths of a GPU at the finest, such as 0.125.")
    return int(milli)
