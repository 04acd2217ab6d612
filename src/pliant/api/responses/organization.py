"""Renders projects, departments, nodes, node pools and clusters."""

import uuid
from collections.abc import Sequence

from pliant.api.responses.amounts import gpus
from pliant.api.responses.times import stamp, stamp_or_none
from pliant.control.board.view import Board, NodeView, PoolUse, QueueView
from pliant.control.ports import Stray
from pliant.control.state.accounting import sum_of
from pliant.model.affinity import Taint
from pliant.model.booking import Stage
from pliant.model.machine import DEFAULT_POOL, Node, NodePool
from pliant.model.quantity import Resources, format_duration
from pliant.model.reason import MayRead
from pliant.model.tenancy import UNLIMITED, Department, Project, Queue, Quota, TimeLimits
from pliant.sched.shares.promises import Promise
from pliant.wire.cluster import ClusterItem, NodeItem, NodePoolItem, NodeTaint, StrategiesItem
from pliant.wire.organization import (
    NodeTypesItem,
    OrgUnitItem,
    Overpromise,
    PoolQuota,
    Quantities,
    QuotaStatus,
    QuotaUse,
    RulesItem,
    Totals,
    UnitStatus,
)

RANKS = {
    "Very Low": 25,
    "Low": 50,
    "Medium Low": 100,
    "Medium": 150,
    "Medium High": 200,
    "High": 250,
    "Very High": 300,
}
"""Names of ranks and their values; the middle one of Quota is the default."""

MB = 10**6
_GPU_HOUR = 1000 * 3_600_000


def rank_name(value: int) -> str:
    return next((name for name, rank in RANKS.items() if rank == value), str(value))


def parent_of(queue: Queue) -> str:
    """Id of the department above; '' at the top."""
    if isinstance(queue, Project):
        return queue.department
    return queue.parent if isinstance(queue, Department) else ""


def rules_of(limits: TimeLimits) -> RulesItem:
    """Limits in seconds by Run:ai's names."""

    def seconds(ms: int | None) -> int | None:
        return None if ms is None else ms // 1000

    return {
        "interactiveJobTimeLimitSeconds": seconds(limits.interactive),
        "interactiveJobMaxIdleDurationSeconds": seconds(limits.interactive_idle),
        "interactiveJobPreemptIdleDurationSeconds": seconds(limits.interactive_preemptible_idle),
        "trainingJobMaxIdleDurationSeconds": seconds(limits.training_idle),
        "trainingJobTimeLimitSeconds": seconds(limits.training),
    }


class UnitRenderer:
    """Renders projects and departments as of one board."""

    def __init__(self, board: Board, now: int) -> None:
        self._board = board
        self._now = now  # ms
        self._pools = {pool.name: pool.id for pool in board.pools}
        self._cluster = board.cluster_id

    def unit(self, view: QueueView) -> OrgUnitItem:
        queue = view.queue
        project = queue if isinstance(queue, Project) else None
        parent = self._board.departments.get(parent_of(queue))
        rules = rules_of(queue.limits)
        types: NodeTypesItem = {
            "training": list(project.training_node_types) if project is not None else [],
            "workspace": list(project.interactive_node_types) if project is not None else [],
        }
        return {
            "id": queue.id,
            "name": queue.name,
            "description": queue.description,
            "clusterId": self._cluster,
            "parentId": parent_of(queue),
            "parent": {"id": parent.queue.id, "name": parent.queue.name} if parent is not None else None,
            "requestedNamespace": None,
            "enforceRunaiScheduler": True,
            "createdAt": stamp(queue.created),
            "resources": [self.resources(view, use) for use in view.uses],
            "schedulingRules": rules,
            "defaultNodePools": list(project.default_pools) if project is not None else [],
            "nodeTypes": types,
            "status": self._status(view, project.namespace if project is not None else None),
            "totalResources": _totals(view),
            "departmentName": parent.queue.name if parent is not None else "",
            "fairShareGpus": gpus(sum(use.fair_share for use in view.uses)),
            "overQuotaGpus": gpus(sum(max(0, use.allocated.gpu - use.quota) for use in view.uses)),
            "quotaDerived": queue.derived,
        }

    def resources(self, view: QueueView, use: PoolUse) -> PoolQuota:
        """`deserved` of GPUs is the quota that holds now, also if it is derived from other quotas."""
        quota = view.queue.quota(use.pool)
        return {
            "nodePool": {"id": self._pools.get(use.pool, ""), "name": use.pool},
            "gpu": {
                "deserved": gpus(use.quota),
                "limit": _bound(quota.gpu_limit, 1000),
                "overQuotaWeight": None if quota.weight is None else quota.weight / 1000,
            },
            "cpu": {
                "deserved": _bound(quota.cpu, 1),
                "limit": _bound(quota.cpu_limit, 1),
                "overQuotaWeight": None,
            },
            "memory": {
                "deserved": _bound(quota.memory, MB),
                "limit": _bound(quota.memory_limit, MB),
                "overQuotaWeight": None,
                "units": "MB",
            },
            "rank": rank_name(quota.rank).replace(" ", ""),
            "priority": rank_name(quota.rank),
            "reclaimMinRuntimeSeconds": _seconds(quota.reclaim_min_runtime),
            "preemptMinRuntimeSeconds": _seconds(quota.preempt_min_runtime),
        }

    def _past_use(self, use: PoolUse) -> tuple[float, float]:
        """(GPU hours, share of what the pool had) of a project; departments have none."""
        now, settings = self._now, self._board.settings
        used = sum_of(use.past, use.allocated.gpu, now, settings)
        had = sum_of(use.past_whole, use.capacity, now, settings)
        return round(used / _GPU_HOUR, 3), round(used / had, 3) if had else 0.0

    def _quota_status(self, use: PoolUse) -> QuotaStatus:
        hours, share = self._past_use(use)
        return {
            "nodePoolName": use.pool,
            "nodePoolId": self._pools.get(use.pool, ""),
            "fairShareGpus": gpus(use.fair_share),
            "pastUseGpuHours": hours,
            "pastUseShare": share,
            **_quota_use([use]),
        }

    def _status(self, view: QueueView, namespace: str | None) -> UnitStatus:
        return {
            "phase": "Ready",
            "namespace": namespace,
            "nodePoolQuotaStatuses": [self._quota_status(use) for use in view.uses],
            "quotaStatus": _quota_use(view.uses),
            "overpromised": [
                self._overpromise(it) for it in self._board.promises if self._counts(view.queue, it)
            ],
        }

    def _counts(self, queue: Project | Department, promise: Promise) -> bool:
        """True if the queue's quota is one of those promised, or the one that they exceed."""
        if queue.id == promise.department and isinstance(queue, Department):
            return True
        if queue.derived or not queue.quota(promise.pool).gpu:
            return False
        above, seen = parent_of(queue), [""]
        while above not in seen and above in self._board.departments:
            seen.append(above)
            above = parent_of(self._board.departments[above].queue)
        return promise.department in seen

    def _overpromise(self, promise: Promise) -> Overpromise:
        department = self._board.departments.get(promise.department)
        return {
            "nodePoolName": promise.pool,
            "departmentName": department.queue.name if department is not None else None,
            "promisedGpus": gpus(promise.promised),
            "gpus": gpus(promise.has),
        }


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _bound(value: int, unit: int) -> float | None:
    return None if value == UNLIMITED else value / unit


def _totals(view: QueueView) -> Totals:
    quotas: list[Quota] = [view.queue.quota(use.pool) for use in view.uses]

    def total(values: Sequence[int], unit: int) -> float | None:
        return None if UNLIMITED in values else sum(values) / unit

    return {
        "gpuQuota": gpus(sum(use.quota for use in view.uses)),
        "cpuQuota": total([quota.cpu for quota in quotas], 1),
        "memoryQuota": total([quota.memory for quota in quotas], MB),
    }


def _quantities(amounts: Sequence[Resources]) -> Quantities:
    """GPUs, millicores, MB."""
    return {
        "gpu": gpus(sum(amount.gpu for amount in amounts)),
        "cpu": float(sum(amount.cpu for amount in amounts)),
        "memory": sum(amount.memory for amount in amounts) / MB,
    }


def _quota_use(uses: Sequence[PoolUse]) -> QuotaUse:
    return {
        "allocated": _quantities([use.allocated for use in uses]),
        "allocatedNonPreemptible": _quantities([use.non_preemptible for use in uses]),
        "requested": _quantities([use.requested for use in uses]),
    }


UNNAMED = "a workload of another project"

CORDONED = Taint("pliant/cordoned")


def _taint(row: Taint) -> NodeTaint:
    return {"key": row.key, "value": row.value, "effect": row.effect.value}


def node_id(node: Node, board: Board) -> str:
    uid = board.cluster_id
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"pliant:{uid}/{node.name}"))


def node_item(view: NodeView, board: Board, may_read: MayRead, strays: Sequence[Stray] = ()) -> NodeItem:
    """A node; workloads whose names the caller may not read are listed as UNNAMED."""
    node, cluster = view.node, board.cluster
    uid = cluster.uuid if cluster is not None else ""
    models = sorted({gpu.model for gpu in node.gpus})
    carried = {gpu.uuid: gpu for gpu in view.gpus}
    active = [it for it in board.bookings if it.stage_at(board.at) is Stage.ACTIVE]
    begun = [(it, dict(it.places)[node.name]) for it in active if node.name in dict(it.places)]
    return {
        "id": node_id(node, board),
        "name": node.name,
        "status": "Ready" if node.ready else "NotReady",
        "nodePool": view.pool,
        "clusterUuid": uid,
        "createdAt": stamp(cluster.created if cluster is not None else 0),
        "updatedAt": stamp(board.at),
        "gpuInfo": {"gpuType": ", ".join(models), "gpuCount": len(node.gpus)} if node.gpus else None,
        "conditions": [
            {
                "type": "Ready",
                "reason": "NodeReady" if node.ready else "NodeNotReady",
                "message": "It is unschedulable." if node.draining else "",
            }
        ],
        "taints": [_taint(it) for it in ((CORDONED,) if node.draining else ()) + node.taints],
        "labels": dict(node.labels),
        "simulated": node.simulated,
        "draining": node.draining,
        "cpuCores": node.cpu / 1000,
        "cpuAllocated": view.used.cpu / 1000,
        "memoryBytes": node.memory,
        "memoryAllocated": view.used.memory,
        "maintenanceUntil": stamp_or_none(max((it.end for it, _ in begun if it.maintenance), default=None)),
        "bookedGpus": sum(count for it, count in begun if not it.maintenance),
        "gpus": [
            {
                "uuid": gpu.uuid,
                "index": gpu.index,
                "memoryBytes": gpu.memory,
                "allocated": gpus(carried[gpu.uuid].carried),
                "releasing": gpus(carried[gpu.uuid].releasing),
                "promised": gpus(carried[gpu.uuid].promised),
                "foreign": gpu.foreign,
                "strays": [
                    {
                        "pid": one.pid,
                        "user": one.user,
                        "program": one.program,
                        "memoryBytes": one.memory[gpu.uuid],
                    }
                    for one in strays
                    if gpu.uuid in one.memory
                ],
                "workloads": [
                    seen.workload.name if may_read(seen.project.id) else UNNAMED
                    for identity in carried[gpu.uuid].workloads
                    if (seen := board.workloads.get(identity)) is not None
                ],
            }
            for gpu in node.gpus
        ],
    }


def pool_item(pool: NodePool, board: Board, notices: Sequence[str] = ()) -> NodePoolItem:
    strategy: StrategiesItem = {
        "cpu": pool.cpu_strategy.value,
        "gpu": pool.gpu_strategy.value,
        "device": pool.device_strategy.value,
    }
    return {
        "id": pool.id,
        "name": pool.name,
        "labelKey": pool.label_key or None,
        "labelValue": pool.label_value or None,
        "isDefault": pool.name == DEFAULT_POOL,
        "phase": "Ready" if any(view.pool == pool.name for view in board.nodes) else "Empty",
        "placementStrategy": strategy,
        "schedulingConfiguration": {
            "placementStrategy": strategy,
            "minGuaranteedRuntime": format_duration(pool.min_runtime) if pool.min_runtime else "0",
        },
        "networkTopologyName": pool.topology or None,
        "minRuntimeSeconds": pool.min_runtime / 1000,
        "notices": list(notices),
    }


def cluster_item(board: Board) -> ClusterItem:
    cluster = board.cluster
    return {
        "uuid": cluster.uuid if cluster is not None else "",
        "name": cluster.name if cluster is not None else "",
        "version": cluster.version if cluster is not None else "",
        "tenantId": 1,
        "createdAt": stamp(cluster.created if cluster is not None else 0),
        "domain": None,
        "status": {"state": "Connected"},
    }
