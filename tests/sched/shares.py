"""Fair shares of a world, as tests compare them."""

from pliant.sched.placement.eligibility import pending
from pliant.sched.shares.entitlement import standings
from pliant.sched.world.queue_tree import department_key
from pliant.sched.world.state import World


def fair_shares(world: World, pool: str, past_use: int = 0) -> dict[str, int]:
    """Milli-GPUs of a pool that each department and project may have now, by id."""
    world.update_sets()
    standing = standings(world, pool, pending(world).get(pool, {}), past_use)
    found = {did: standing[department_key(did)].fair.gpu for did in sorted(world.departments)}
    return {**found, **{pid: standing[pid].fair.gpu for pid in sorted(world.projects)}}
