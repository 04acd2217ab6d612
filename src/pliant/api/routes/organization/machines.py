"""Routes for machines: nodes, node pools, clusters."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Response

from pliant.api.context import Context, Here
from pliant.api.guard import needs
from pliant.api.identity.auth import Caller
from pliant.api.identity.principal import Principal
from pliant.api.late import Router
from pliant.api.listing import Listing, Window
from pliant.api.redaction import sight
from pliant.api.repeats import answered
from pliant.api.requests.parse_submission import check_cluster, told_of
from pliant.api.responses.encoding import answer, answers, empty
from pliant.api.responses.organization import cluster_item, node_id, node_item, pool_item
from pliant.api.routes.organization.scheduling import topology_id
from pliant.api.schemas.models import Received, without_effect
from pliant.control.board.view import Board, NodeView
from pliant.control.errors import BadRequest, NotFound
from pliant.model.affinity import Effect, Taint
from pliant.model.machine import NodePool, Strategy
from pliant.model.quantity import parse_duration
from pliant.wire.cluster import (
    ClusterItem,
    NodeItem,
    NodeList,
    NodePoolItem,
    NodePoolList,
    NodeRequest,
    PoolChange,
    PoolRequest,
    Strategies,
    TaintItem,
)
from pliant.wire.workload import Counted

router = Router(prefix="/api/v1", tags=["machines"])


_nodes: Listing[NodeView] = Listing(
    {
        "name": lambda view: view.node.name,
        "status": lambda view: "Ready" if view.node.ready else "NotReady",
        "nodePool": lambda view: view.pool,
        "gpuType": lambda view: ", ".join(sorted({gpu.model for gpu in view.node.gpus})),
        "gpuCount": lambda view: len(view.node.gpus),
        "draining": lambda view: view.node.draining,
        "simulated": lambda view: view.node.simulated,
    },
    searched=("name", "nodePool", "gpuType"),
)
AskedNodes = Annotated[Window, Depends(_nodes.asked)]
_pools: Listing[NodePool] = Listing(
    {
        "id": lambda pool: pool.id,
        "name": lambda pool: pool.name,
        "labelKey": lambda pool: pool.label_key,
        "labelValue": lambda pool: pool.label_value,
    },
    searched=("name", "labelKey", "labelValue"),
)
AskedPools = Annotated[Window, Depends(_pools.asked)]


@router.get("/clusters", dependencies=[needs("clusters:read")], **answers(200, list[ClusterItem]))
def clusters(here: Here) -> Response:
    """The one that this server manages."""
    return answer([cluster_item(here.service.board)])


@router.get("/clusters/{identity}", dependencies=[needs("clusters:read")], **answers(200, ClusterItem))
def cluster(identity: str, here: Here) -> Response:
    """By its UUID or its name."""
    check_that_cluster(here.service.board, identity)
    return answer(cluster_item(here.service.board))


def check_that_cluster(board: Board, identity: str) -> None:
    """Raise NotFound unless this is the UUID or the name of this server's cluster."""
    item = cluster_item(board)
    if identity not in (item["uuid"], item["name"]):
        raise NotFound(f"There is no cluster {identity[:60]!r}.", f"This server's is {item['uuid']}.")


@router.get("/nodes/count", dependencies=[needs("nodes:read")], **answers(200, Counted))
def count_nodes(here: Here, asked: AskedNodes) -> Response:
    return answer(_nodes.count(here.service.board.nodes, asked))


@router.get("/nodes", dependencies=[needs("nodes:read")], **answers(200, NodeList))
def nodes(here: Here, asked: AskedNodes, caller: Caller) -> Response:
    board = here.service.board
    sees = sight(board, caller)
    strays = here.server.strays()
    return answer(_nodes.page("nodes", board.nodes, asked, lambda view: node_item(view, board, sees, strays)))


@router.get("/nodes/{name}", dependencies=[needs("nodes:read")], **answers(200, NodeItem))
def node(name: str, here: Here, caller: Caller) -> Response:
    """By name or id."""
    return _node(name, here, caller)


@router.post("/nodes/{name}/cordon", dependencies=[needs("nodes:update")], **answers(200, NodeItem))
def cordon(name: str, here: Here, caller: Caller) -> Response:
    """What runs there goes on, nothing new comes."""
    here.service.cordon(name, True, caller.user)
    return _node(name, here, caller)


@router.post("/nodes/{name}/uncordon", dependencies=[needs("nodes:update")], **answers(200, NodeItem))
def uncordon(name: str, here: Here, caller: Caller) -> Response:
    here.service.cordon(name, False, caller.user)
    return _node(name, here, caller)


@router.patch("/nodes/{name}", dependencies=[needs("nodes:update")], **answers(200, NodeItem))
def update_node(name: str, body: Received[NodeRequest], here: Here, caller: Caller) -> Response:
    """Labels and taints; they stay whatever the node's engine reports."""
    labels, sent = body.get("labels"), body.get("taints")
    if not (labels or sent):
        raise BadRequest("No setting was given.", "Name labels or taints.")
    if labels:
        here.service.label(name, labels, caller.user)
    if sent:
        put = [_taint(entry) for entry in sent if not entry.get("exclude")]
        gone = [_taint(entry) for entry in sent if entry.get("exclude")]
        here.service.taint(name, put, gone, caller.user)
    return _node(name, here, caller)


def _taint(entry: TaintItem) -> Taint:
    return Taint(entry["key"], entry.get("value", ""), Effect(entry.get("effect", "NoSchedule")))


def _node(name: str, here: Context, caller: Principal) -> Response:
    board = here.service.board
    strays = here.server.strays()
    return answer(node_item(known_node(board, name), board, sight(board, caller), strays))


def known_node(board: Board, name: str) -> NodeView:
    """By name or id. Raises NotFound."""
    for view in board.nodes:
        if name in (view.node.name, node_id(view.node, board)):
            return view
    raise NotFound(
        f"There is no node {name[:60]!r}.", "See the nodes with: pliant node list (GET /api/v1/nodes)"
    )


@router.get("/node-pools/count", dependencies=[needs("nodepools:read")], **answers(200, Counted))
def count_pools(here: Here, asked: AskedPools) -> Response:
    return answer(_pools.count(here.service.board.pools, asked))


@router.get("/node-pools", dependencies=[needs("nodepools:read")], **answers(200, NodePoolList))
def node_pools(here: Here, asked: AskedPools) -> Response:
    board = here.service.board
    return answer(_pools.page("nodepools", board.pools, asked, lambda pool: pool_item(pool, board)))


@router.post("/node-pools", dependencies=[needs("nodepools:write")], **answers(201, NodePoolItem))
def create_pool(body: Received[PoolRequest], here: Here, caller: Caller) -> Response:
    """All nodes that carry its label; every project starts in it with a quota of 0."""
    board = here.service.board
    return answered(
        lambda: here.service.create_pool(body["name"], lambda row: _changed(row, body, board), caller.user),
        lambda pool: _pool(pool.name, here, 201, without_effect(PoolRequest, body)),
        lambda pool: f"/api/v1/node-pools/{pool.id}",
    )


@router.get("/node-pools/{key}", dependencies=[needs("nodepools:read")], **answers(200, NodePoolItem))
def node_pool(key: str, here: Here) -> Response:
    """By id or name."""
    return _pool(key, here)


def update_pool(key: str, body: Received[PoolChange], here: Here, caller: Caller) -> Response:
    """What is named is set, all else stays."""
    pool = here.service.update_pool(key, lambda row: _changed(row, body, here.service.board), caller.user)
    return _pool(pool.name, here, 200, without_effect(PoolChange, body))


for _method in ("put", "patch"):
    getattr(router, _method)(
        "/node-pools/{key}",
        name=f"{_method}_pool",
        dependencies=[needs("nodepools:write")],
        **answers(200, NodePoolItem),
    )(update_pool)


@router.delete(
    "/node-pools/{key}", dependencies=[needs("nodepools:write")], status_code=204, response_model=None
)
def delete_pool(key: str, here: Here, caller: Caller) -> Response:
    here.service.delete_pool(key, caller.user)
    return empty()


def _pool(key: str, here: Context, status: int = 200, vain: Iterable[str] = ()) -> Response:
    board = here.service.board
    return answer(pool_item(known_pool(board, key), board, told_of(vain)), status)


def known_pool(board: Board, key: str) -> NodePool:
    """By name or id. Raises NotFound."""
    for pool in board.pools:
        if key in (pool.id, pool.name):
            return pool
    raise NotFound(
        f"There is no node pool {key[:60]!r}.",
        "See the pools with: pliant nodepool list (GET /api/v1/node-pools)",
    )


def _changed(pool: NodePool, body: PoolRequest | PoolChange, board: Board) -> NodePool:
    """The pool with the changes that the body names. Raises BadRequest, NotFound."""
    check_cluster(body.get("clusterId"), board)
    if body.get("name", pool.name) != pool.name:
        raise BadRequest("The name of a node pool cannot be changed.", "Make another one.", field="name")
    scheduling = body.get("schedulingConfiguration", {})
    packing: Strategies = {**body.get("placementStrategy", {}), **scheduling.get("placementStrategy", {})}
    pool = replace(
        pool,
        label_key=body.get("labelKey", pool.label_key),
        label_value=body.get("labelValue", pool.label_value),
        gpu_strategy=Strategy(packing.get("gpu", pool.gpu_strategy)),
        cpu_strategy=Strategy(packing.get("cpu", pool.cpu_strategy)),
        device_strategy=Strategy(packing.get("device", pool.device_strategy)),
    )
    if "networkTopologyName" in body or "networkTopologyId" in body:
        key = body.get("networkTopologyName") or body.get("networkTopologyId") or ""
        names = (row.name for row in board.topologies if key == topology_id(board, row.name))
        pool = replace(pool, topology=next(names, key))
    if "minRuntimeSeconds" in body:
        return replace(pool, min_runtime=round(body["minRuntimeSeconds"] * 1000))
    if "minGuaranteedRuntime" in scheduling:
        try:
            return replace(pool, min_runtime=parse_duration(scheduling["minGuaranteedRuntime"]))
        except ValueError as error:
            raise BadRequest(
                f"schedulingConfiguration.minGuaranteedRuntime: {error}.",
                field="schedulingConfiguration.minGuaranteedRuntime",
            ) from error
    return pool
