"""Looks for the smallest changes with which a waiting workload would start, by asking the core about each.

Every answer was checked in both directions: with the change the core places the workload, and with one unit
less of it (a GPU, a task, a point of priority, one of the workloads that end) it does not.
"""

from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter

from pliant.model.quantity import GPU
from pliant.model.reason import Cure, NonPreemptibleOverQuota, OverLimit, Reason
from pliant.model.workload import Desired, TaskPhase, Workload
from pliant.sched.explain import offers
from pliant.sched.explain.changes import amount_of, raised
from pliant.sched.explain.remedies import Remedy, Tried, sized
from pliant.sched.explain.remedy_search import Search
from pliant.sched.explain.several import at_once
from pliant.sched.explain.trial import Change, gone, together
from pliant.sched.placement import eligibility
from pliant.sched.plan import Plan
from pliant.sched.shares.naming import queue_named, workload_named
from pliant.sched.world.chunks import Chunk
from pliant.sched.world.nodes import NodeState
from pliant.sched.world.portions import next_chunk

MOST_ENDING = 64
"""Workloads that may have to end in one answer."""


class Unblocking(Search):
    """One search for one workload. The world is as before when it is over."""

    def run(self, reason: Reason | None, wake: int | None = None) -> list[Remedy]:
        """The remedies found. `reason` and `wake`: those of the last plan."""
        try:
            self._run(reason, wake)
        finally:
            self.restore()
        if not self.found and not self.done:
            several = at_once(self.trial, self.wid, self.unit("gpu"))
            self.found += [several] if several is not None else []
        return self.found

    def _run(self, reason: Reason | None, wake: int | None) -> None:
        row = self.world.workloads[self.wid]
        if row.desired is not Desired.RUNNING:
            resume = Remedy(Cure("resume"), Change((replace(row, desired=Desired.RUNNING),)))
            if self.works(resume.change):
                self.found.append(resume)
                return
            self.keep(resume)
            reason = self._reason(self.trial.decide(Change()))
        if any(self.world.claim_of(key) for key in self.world.keys_of(self.wid)):
            self._release()
        until = getattr(reason, "until", None)
        for instant in dict.fromkeys((until, wake)):
            if isinstance(instant, int) and instant > self.trial.now and not self.done:
                self._wait(instant)
        if row.project not in self.world.projects:
            return
        reason = self._refusals(reason)
        looks = [self._look(offer) for offer in offers.fitting(reason.code if reason else "", self.deep)]
        for look in [*looks, self._end] if self.deep else [self._end, *looks]:
            row = self.world.workloads[self.wid]
            chunk = next_chunk(self.world, row)
            if self.done or chunk is None:
                return
            look(row, chunk)

    def _look(self, offer: Callable[[Search, Workload, Chunk], None]) -> Callable[[Workload, Chunk], None]:
        return lambda row, chunk: offer(self, row, chunk)

    def _reason(self, plan: Plan) -> Reason | None:
        return plan.verdicts.reason(self.wid)

    def _wait(self, instant: int) -> None:
        if not self.works(Change(), instant) or self.works(Change(), self.trial.now):
            return
        early, late = self.trial.now, instant
        while late - early > 1:
            middle = (early + late) // 2
            if self.works(Change(), middle):
                late = middle
            else:
                early = middle
        if self.trial.tries > 0 and all(other.kind != "wait" for other in self.found):
            self.add(Remedy(Cure("wait", late - self.trial.now)))

    def _release(self) -> None:
        """The workloads being stopped that must have ended before it starts."""
        parts: dict[str, Change] = {}
        for task in self.world.tasks.values():
            if task.phase is TaskPhase.STOPPING:
                ended = Change((replace(task, phase=TaskPhase.WAITING, carries=None, started=None),))
                parts[task.workload] = parts.get(task.workload, Change()).and_then(ended)
        chosen = self._irreducible(parts, list(parts))
        if chosen is not None:
            whom = tuple(workload_named(self.world, wid) for wid in chosen)
            self.add(Remedy(Cure("release", whom=whom), **_without_one(parts, chosen)))

    # ------------------------------------------------------------------ bounds that it would break
    def _refusals(self, reason: Reason | None) -> Reason | None:
        """Raise the broken bounds one by one, before anything else can help; returns the reason left."""
        for _ in range(8):
            if self.done or not isinstance(reason, OverLimit | NonPreemptibleOverQuota):
                return reason
            kind, bound = (
                ("limit", reason.limit) if isinstance(reason, OverLimit) else ("quota", reason.quota)
            )
            resource, pool = reason.resource, reason.pool
            unit = self.unit(resource)
            short = reason.used + reason.asked - bound
            at = reason.queue.id
            queue = (
                self.world.projects.get(at) if reason.level == "project" else self.world.departments.get(at)
            )
            if queue is None or short <= 0:
                return reason
            if kind == "quota" and not self.after:
                offers.preemptible(self, self.world.workloads[self.wid])
            change = raised(self.world, (queue,), pool, kind, resource, unit)
            guess = -(-short // unit)
            count = self.least(guess + 16 * GPU // unit, change, guess)
            before = amount_of(self.world, queue, pool, kind, resource)
            amount, whom = (count or guess) * unit, (queue_named(queue),)
            cure = Cure(kind, amount, unit, before, resource, pool, whom=whom)
            step = Remedy(cure, **sized(change, count or guess))
            if count:
                self.add(step)
                return reason
            self.keep(step)
            reason = self._reason(self.trial.decide(Change()))
        return reason

    # ------------------------------------------------------------------ others end
    def _end(self, row: Workload, chunk: Chunk) -> None:
        """Other workloads end: as few GPUs as possible, on the nodes where least is missing."""
        for pool in eligibility.choices(self.world, row):
            order = self._holders(row, chunk, pool)
            parts = {wid: gone(self.world, wid) for wid in order}
            single = [wid for wid in order if self.world.gpu_of(wid) >= chunk.resources.gpu]
            chosen = next(
                ([wid] for wid in dict.fromkeys([*order[:2], *single[:1]]) if self.works(parts[wid])), None
            )
            if chosen is None and len(order) > 1:
                count = self.least(min(len(order), MOST_ENDING), _prefix(parts, order))
                chosen = self._irreducible(parts, order[:count])
            if chosen is None:
                continue
            claims = [self.world.claim_of(key) for wid in chosen for key in self.world.keys_of(wid)]
            nodes = tuple(sorted({claim.node for claim in claims if claim is not None}))
            whom = tuple(workload_named(self.world, wid) for wid in chosen)
            gpus = sum(map(self.world.gpu_of, chosen))
            self.add(Remedy(Cure("end", gpus, nodes=nodes, whom=whom), **_without_one(parts, chosen)))
            return

    def _holders(self, row: Workload, chunk: Chunk, pool: str) -> list[str]:
        """Workloads by node: first where least is missing, on it the smallest that are enough."""
        cls = eligibility.nodes_for(self.world, row, pool)
        need = max((part.request.devices for part in chunk.parts), default=0) or 1
        found: dict[str, None] = {}

        def missing(node: NodeState) -> tuple[int, int, str]:
            lacks = max(1, need - node.free)
            return (lacks if node.usable >= need else 1 << 20, -node.free, node.row.name)

        for node in sorted(cls.nodes.values(), key=missing)[:MOST_ENDING]:
            here: dict[str, int] = {}
            for key, claim in sorted(self.world.claims_on(node), key=itemgetter(0)):
                if key[0] != self.wid:
                    here[key[0]] = here.get(key[0], 0) + max(1, claim.gpu)
            lacks = max(1, need - node.free) * GPU
            for wid in sorted(here, key=lambda w: (here[w] < lacks, abs(here[w] - lacks), w)):
                found[wid] = None
        return list(found)

    def _irreducible(self, parts: dict[str, Change], order: list[str]) -> list[str] | None:
        """A set of them that works, none of which can be left out; None if not even all together work."""
        if not order or not self.works(together(parts[wid] for wid in order)):
            return None
        chosen = list(order)
        for wid in reversed(order):
            rest = [other for other in chosen if other != wid]
            if rest and self.works(together(parts[other] for other in rest)):
                chosen = rest
        return chosen if self.trial.tries > 0 else None


def _without_one(parts: dict[str, Change], chosen: list[str]) -> Tried:
    rests = [[other for other in chosen if other != wid] for wid in chosen if len(chosen) > 1]
    less = tuple(together(parts[wid] for wid in rest) for rest in rests)
    return {"change": together(parts[wid] for wid in chosen), "less": less}


def _prefix(parts: dict[str, Change], order: list[str]) -> Callable[[int], Change]:
    return lambda count: together(parts[wid] for wid in order[:count])
