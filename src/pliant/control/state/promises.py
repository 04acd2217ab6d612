"""Finds quotas that the machines cannot keep, and refuses them if the settings say so."""

from pliant.control.errors import Conflict
from pliant.control.state.draft import Draft
from pliant.control.state.state import State
from pliant.model.quantity import GPU, spell_gpus
from pliant.model.tenancy import Department, Project
from pliant.sched.shares.promises import Promise, Promises
from pliant.sched.world.state import World


def broken(world: World, draft: Draft | None = None) -> tuple[Promise, ...]:
    """Quotas that add up to more GPUs than there are, unavailable GPUs included; with a draft's changes."""
    departments, projects = dict(world.departments), dict(world.projects)
    for row in draft.rows.values() if draft is not None else ():
        if isinstance(row, Project):
            projects[row.id] = row
        elif isinstance(row, Department):
            departments[row.id] = row
    machines = dict.fromkeys(world.pools, 0)
    for node in world.nodes.values():
        machines[node.pool] = machines.get(node.pool, 0) + len(node.devices) * GPU
    return tuple(
        promise
        for pool in sorted(world.pools)
        for promise in Promises(departments, projects, pool).broken(machines[pool])
    )


def check_promises(state: State, draft: Draft) -> None:
    """Raise Conflict if the settings refuse what the draft promises; a broken promise may stay, not grow."""
    if state.settings.overpromise != "refuse":
        return
    world = state.world
    before = {(it.pool, it.department): it.promised - it.has for it in broken(world)}
    for it in broken(world, draft):
        if it.promised - it.has > before.get((it.pool, it.department), 0):
            raise Conflict(
                f"{said(it, world)} The setting overpromise=refuse does not allow it.",
                "Lower the quota, or allow it with: pliant cluster settings overpromise=mark",
                field="resources.gpu.deserved",
            )


def said(promise: Promise, world: World) -> str:
    """'The quotas of node pool default add up to 6 GPUs; its nodes have 4 GPUs.'"""
    promised, has = spell_gpus(promise.promised), spell_gpus(promise.has)
    if not promise.department:
        return f"The quotas of node pool {promise.pool} add up to {promised}; its nodes have {has}."
    name = world.departments[promise.department].name
    return (
        f"The quotas in department {name} add up to {promised} in node pool {promise.pool};"
        f" the department's quota is {has}."
    )
