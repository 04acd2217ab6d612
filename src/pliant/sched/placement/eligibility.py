"""Where a workload may go: pools in the order to try, node types, and whether it could ever fit."""

from typing import TYPE_CHECKING

from pliant.model.machine import DEFAULT_POOL
from pliant.model.quantity import GPU
from pliant.model.workload import Kind, Workload
from pliant.sched.placement import affinity
from pliant.sched.world.node_classes import PLAIN
from pliant.sched.world.nodes import NodeClass
from pliant.sched.world.portions import Chunk

if TYPE_CHECKING:
    from pliant.sched.world.state import World

NO_TYPE = ("\0",)
"""Allowed node types when a workload asks for one that its project does not allow: no node matches."""


def all_pools(world: "World") -> list[str]:
    """Names of pools, `default` first."""
    return [DEFAULT_POOL, *sorted(name for name in world.pools if name != DEFAULT_POOL)]


def choices(world: "World", workload: Workload) -> list[str]:
    """Pools to try, in order; just one where it already holds something. Its project must be known.

    Runs that have nothing to do with one another may lie in several.
    """
    independent = workload.groups and all(group.at_once for group in workload.groups)
    for key in world.keys_of(workload.id) if not independent else ():
        claim = world.claim_of(key)
        if claim is not None and claim.node in world.nodes:
            return [world.pool_of(claim.node)]
    names = workload.pools or world.projects[workload.project].default_pools
    return [name for name in names if name in world.pools] if names else all_pools(world)


def types(world: "World", workload: Workload) -> tuple[str, ...]:
    """Allowed values of the node type label; none: any."""
    project = world.projects[workload.project]
    interactive = workload.kind in (Kind.WORKSPACE, Kind.INFERENCE)
    allowed = project.interactive_node_types if interactive else project.training_node_types
    if workload.node_type:
        return (workload.node_type,) if not allowed or workload.node_type in allowed else NO_TYPE
    return allowed


def nodes_for(world: "World", workload: Workload, pool: str) -> NodeClass:
    """The nodes that some of its tasks may use."""
    wheres = affinity.wheres_of(world, workload)
    return world.node_class(pool, types(world, workload), PLAIN._replace(wheres=wheres))


def never_fits(world: "World", chunk: Chunk, cls: NodeClass) -> bool:
    """True if these nodes could not hold it even if they were empty."""
    devices, gpu_memory, cpu, memory = cls.largest
    picky = bool(world.demands(chunk.workload.id))
    whole = 0
    for part in chunk.parts:
        request = part.request
        if request.portion >= GPU and not request.gpu_memory:
            whole += request.devices
        if picky:
            devices, gpu_memory, cpu, memory = affinity.for_task(world, cls, part.task).largest
        if not part.extends and (
            request.devices > devices
            or request.gpu_memory > gpu_memory
            or request.cpu > cpu
            or request.memory > memory
        ):
            return True
    return whole > cls.usable or (picky and affinity.crowded(world, chunk, cls, empty=True) is not None)
