"""Relief: what queues must give up first, because the chunk would break a limit of theirs."""

from pliant.sched.preemption.node_eviction import Clearing
from pliant.sched.preemption.victims import Cost, Rules, Unit, unit_for
from pliant.sched.shares.admission import Refusal
from pliant.sched.world.chunks import Step


class Relief:
    """Before room is made for one chunk."""

    def __init__(self, clearing: Clearing, rules: Rules, own_rule: bool) -> None:
        self._clearing = clearing
        self._rules = rules
        self._world = rules.world
        self._own_rule = (
            own_rule  # the chunk's own rule asks for it as well, where only its queue can cure it
        )

    def taken(self, units: list[Unit]) -> bool:
        """Take from queues whose limit the chunk would break until it no longer does, into `units`."""
        world = self._world
        while (refusal := self._bound()) is not None:
            if refusal.quota:
                return False
            lacks = refusal.used + refusal.asked - refusal.allowed
            best: tuple[tuple[bool, bool, int, Cost], Unit] | None = None
            for project, holders in sorted(world.holders.items()):
                if refusal.key not in world.path(project):
                    continue
                for wid in sorted(holders):
                    unit = self._any_unit(wid, refusal.resource)
                    if unit is not None:
                        # One that is enough alone; else portions before cores, and of these the largest.
                        enough = refusal.resource != "gpu" or unit.gpu >= lacks
                        core = not enough and unit.step is Step.CORE
                        size = 0 if enough else -unit.gpu
                        found = (not enough, core, size, self._clearing.price([unit]))
                        if best is None or found < best[0]:
                            best = (found, unit)
            if best is None or not self._clearing.spend(1):
                return False
            self._clearing.apply(best[1])
            units.append(best[1])
        return True

    def _bound(self) -> Refusal | None:
        """The limit that the chunk would break now, or its own rule."""
        rules = self._rules
        found = rules.cycle.shares.refuse(rules.chunk, rules.pool, rules.adding)
        return rules.lacking() if found is None and self._own_rule else found

    def _any_unit(self, wid: str, resource: str) -> Unit | None:
        """The least of a resource (gpu, cpu, memory) that this workload can lose in this pool."""
        found: list[Unit] = []
        for key in reversed(self._world.keys_of(wid)):
            claim = self._world.claim_of(key)
            if claim is None or self._world.pool_of(claim.node) != self._rules.pool:
                continue
            if not getattr(claim.resources, resource):
                continue
            uuid = claim.shares[-1].gpu if claim.shares else None
            unit = unit_for(self._rules, key, uuid)
            if unit is not None and unit.again is None:
                found.append(unit)
        return max(found, key=lambda unit: unit.step, default=None)
