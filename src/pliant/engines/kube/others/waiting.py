"""Turns pods of others that name Pliant as their scheduler into workloads, grouped by their maker."""

import threading
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lightkube.resources.core_v1 import Pod

from pliant.control.ports import Sink
from pliant.engines.kube.apiserver.cluster import Cluster
from pliant.engines.kube.apiserver.seen import Seen
from pliant.engines.kube.apiserver.work import WorkQueue
from pliant.engines.kube.others.found import as_one, no_group, workload_of
from pliant.engines.kube.others.offers import Offer, offer_of
from pliant.engines.kube.others.origins import Maker, is_there, maker_of
from pliant.model.fact import WorkFound, WorkGone, WorkListed
from pliant.model.order import Start
from pliant.model.workload import AttemptId, Workload

AGAIN = 5.0
"""Seconds between two looks at a maker that lacks some or all of its pods."""

REFUSED = "PliantRefused"
"""Reason in the condition and the event of a refused pod."""

WAITS = "Unschedulable"
"""Reason in the condition of a pending pod, which autoscalers look for."""

SETTLED = 1.0
"""Seconds that a pod waits before it is told why: most are bound by then, and each message is a request."""

LISTED = ("listed",)
Key = tuple[str, str]


@dataclass(slots=True)
class Source:
    """All pods with the same controller, gang and PodGroup, or one pod alone."""

    key: str
    offers: dict[Key, Offer] = field(default_factory=dict)
    maker: Maker | None = None
    namespace: str = ""


class WaitingPods:
    """`see`, `claim` and `answer` may be called by any thread."""

    def __init__(
        self,
        cluster: Cluster,
        report: Sink,
        engine: str,
        scheduler: str,
        known: Container[AttemptId],
        scheduled: Callable[[Seen], bool],
    ) -> None:
        """`known`: attempts that this server has ordered. `scheduled`: true of pods of those not lost."""
        self._ordered, self._scheduled = known, scheduled
        self._cluster, self._report, self._engine = cluster, report, engine
        self.scheduler = scheduler  # the scheduler name of its pods
        self._lock = threading.Lock()
        self._sources: dict[str, Source] = {}  # by key
        self._made: dict[str, dict[str, Source]] = {}  # those with a maker, by its uid and their key
        self._taken: set[Key] = set()  # pods chosen for a start
        self._told: dict[str, Workload] = {}  # by id, as last reported
        self._said: dict[str, tuple[str, bool]] = {}  # workload -> why it waits, whether it is taken in
        self._warned: dict[str, str] = {}  # uid of a pod -> the last warning
        self._queue: WorkQueue | None = None
        self._words: WorkQueue | None = None  # keys: workloads whose pods must be told why they wait

    def open(self) -> None:
        """Reports all that was seen until now, the oldest first."""
        queue = WorkQueue(self._work, 1)
        with self._lock:
            self._queue, self._words = queue, WorkQueue(self._tell_why, 1)
            ages = {uid: min(map(by_age, it.offers.values())) for uid, it in self._sources.items()}
        for uid in sorted(ages, key=lambda uid: ages[uid]):
            queue.add(uid)
        queue.add(LISTED)

    def close(self) -> None:
        for queue in (self._queue, self._words):
            if queue is not None:
                queue.close()

    def see(self, seen: Seen, pod: Pod, *, there: bool) -> None:
        """Records a pod as seen, or as gone."""
        if not seen.found or seen.scheduler != self.scheduler:
            return
        key = (seen.namespace, seen.name)
        if there and self._only_placed(seen, key):
            return
        offer = offer_of(pod, seen)
        with self._lock:
            source = self._sources.setdefault(offer.source, Source(offer.source, namespace=seen.namespace))
            if there:
                source.offers[key] = offer
            else:
                source.offers.pop(key, None)
                self._warned.pop(seen.uid, None)
            if not there or seen.cluster:
                self._taken.discard(key)
        if self._queue is not None:
            self._queue.add(offer.source)

    def _only_placed(self, seen: Seen, key: Key) -> bool:
        """True if a lone pod was only bound, or still runs: its workload is unchanged."""
        with self._lock:
            source = self._sources.get(seen.uid)
            before = source.offers.get(key) if source is not None else None
            if source is None or before is None or seen.uid not in self._told:
                return False
            if seen.amount != before.pod.amount or not self._runs(seen):
                return False
            source.offers[key] = replace(before, pod=seen, waits=False)
            self._taken.discard(key)
            return True

    def _runs(self, pod: Seen) -> bool:
        """True if it is the pod of an attempt of ours that continues."""
        return bool(pod.node) and pod.lives and not pod.deleting and self._scheduled(pod)

    def retain(self, there: Container[Key]) -> None:
        """Drops all pods that are not in `there`."""
        with self._lock:
            shrunk = [uid for uid, it in self._sources.items() if any(key not in there for key in it.offers)]
            for uid in shrunk:
                kept = {key: it for key, it in self._sources[uid].offers.items() if key in there}
                self._sources[uid].offers = kept
        if (queue := self._queue) is not None:
            for uid in shrunk:
                queue.add(uid)

    def refuse(self, workload: str, why: str) -> None:
        """Tells the workload's waiting pods that they cannot be started."""
        with self._lock:
            pods = [it.pod for source in self._of(workload) for it in source.offers.values() if it.waits]
        for pod in pods:
            self._warn(pod, why)

    def claim(self, order: Start, notes: Mapping[str, str]) -> Seen | None:
        """A pod for that start, marked with its attempt and these annotations; None if none waits. A lone pod
        is bound at once: no other pod could be taken for it, so it needs no finalizer."""
        group = order.attempt.task.rpartition("-")[0]
        with self._lock:
            waiting = self._waiting(order.workload.id, group)
            if not waiting:
                return None
            chosen, alone = waiting[0].pod, waiting[0].alone
            key = (chosen.namespace, chosen.name)
            self._taken.add(key)
        claimed = None
        try:
            if alone:
                claimed = self._cluster.take(chosen, order.attempt, order.placement, notes)
            else:
                claimed = self._cluster.claim(chosen, order.attempt, order.placement.uuids, notes)
        finally:
            if claimed is None:
                with self._lock:
                    self._taken.discard(key)
        return claimed

    def _waiting(self, workload: str, group: str) -> list[Offer]:
        """Pods of that group that could be bound now, the oldest first."""
        found = [
            offer
            for source in self._of(workload)
            for key, offer in source.offers.items()
            if offer.waits and offer.group == group and key not in self._taken
        ]
        return sorted(found, key=by_age)

    def _of(self, workload: str) -> list[Source]:
        alone = self._sources.get(workload)
        return [alone] if alone is not None else list(self._made.get(workload, {}).values())

    # ---- reports ----

    def answer(self, workload: str, why: str, *, taken: bool) -> None:
        with self._lock:
            self._said[workload] = (why, taken)
        if why and self._words is not None:
            self._words.add(workload, SETTLED if taken else 0.0)

    def _work(self, key: Hashable) -> float | None:
        match key:
            case ("listed",):
                with self._lock:
                    there = frozenset(self._told)
                self._report(WorkListed(self._engine, there))
            case str(uid):
                return self._look(uid)
        return None

    def _tell_why(self, key: Hashable) -> float | None:
        workload = str(key)
        with self._lock:
            why, taken = self._said.get(workload, ("", True))
            pods = [it.pod for source in self._of(workload) for it in source.offers.values() if it.waits]
        for pod in pods if why else ():
            if taken:
                self._cluster.explain(pod, WAITS, why)
            else:
                self._warn(pod, why)
        return None

    def _look(self, uid: str) -> float | None:
        with self._lock:
            source = self._sources.get(uid)
            offers = sorted(source.offers.values(), key=by_age) if source is not None else []
        if source is None:
            return None
        if offers and (offers[0].owner or offers[0].together) and self._stale(source):
            maker = maker_of(self._cluster.client, source.namespace, offers[0])
            if maker is None:
                for offer in offers:
                    if offer.waits and offer.together is not None:
                        self._warn(offer.pod, no_group(offer.together))
                return AGAIN
            self._learn(source, maker)
        if not offers:
            return self._empty(uid, source)
        wrong = next((it for it in offers if it.wrong and it.waits), None)
        if wrong is not None:
            self._warn(wrong.pod, wrong.wrong)
            return None
        self._tell(source.maker.uid if source.maker is not None else uid)
        return AGAIN if self._lacks(source) else None

    def _tell(self, identity: str) -> None:
        """Reports a workload that has pods, if it has changed."""
        with self._lock:
            sources = self._of(identity)
            found = sorted((it for each in sources for it in each.offers.values()), key=by_age)
            if not found or (identity not in self._told and self._elsewhere(found)):
                return  # the last pods have just gone and will be checked again, or they are another server's
            maker = as_one([it.maker for it in sources if it.maker is not None])
            row = workload_of(identity, maker, found, self._free, self._engine)
            news = self._told.get(identity) != row
            self._told[identity] = row
        if news:
            self._report(WorkFound(row))

    def _free(self, offer: Offer) -> bool:
        """True if a task could be started as this pod. A lone pod counts while its task runs, too, so that
        its row does not change at the start."""
        if offer.alone:
            return offer.waits or self._runs(offer.pod)
        return offer.waits and (offer.pod.namespace, offer.pod.name) not in self._taken

    def renew(self, workload: str) -> None:
        """Reports how many pods wait, before the scheduler hears that an attempt was lost."""
        if workload in self._told:
            self._tell(workload)

    def _elsewhere(self, found: Sequence[Offer]) -> bool:
        """True if another server has placed all live pods, possibly one whose database is lost."""
        attempts = [it.pod.attempt for it in found if it.pod.lives]
        return bool(attempts) and all(it is not None and it not in self._ordered for it in attempts)

    def _stale(self, source: Source) -> bool:
        """True if its maker may have changed."""
        maker = source.maker
        if maker is None or self._lacks(source):
            return True
        with self._lock:
            there = sum(len(each.offers) for each in self._of(maker.uid))
        return there > sum(each.count for each in maker.groups.values())

    def _lacks(self, source: Source) -> bool:
        """True if fewer pods live than its maker keeps."""
        maker = source.maker
        if maker is None:
            return False
        with self._lock:
            sources = [source] if maker.is_pod_group else self._of(maker.uid)
            pods = [it.pod for each in sources for it in each.offers.values()]
        return sum(not (it.over or it.deleting) for it in pods) < maker.at_once

    def _learn(self, source: Source, maker: Maker) -> None:
        """Gives the maker's current state to all sources of that maker."""
        with self._lock:
            self._forget_maker(source)
            self._made.setdefault(maker.uid, {})[source.key] = source
            source.maker = maker
            for each in () if maker.is_pod_group else self._of(maker.uid):
                each.maker = maker

    def _forget_maker(self, source: Source) -> None:
        if source.maker is not None:
            kin = self._made[source.maker.uid]
            del kin[source.key]
            if not kin:
                del self._made[source.maker.uid]

    def _warn(self, pod: Seen, why: str) -> None:
        if self._warned.get(pod.uid) != why:
            self._cluster.warn(pod, REFUSED, why)
            self._warned[pod.uid] = why

    def _empty(self, uid: str, source: Source) -> float | None:
        """Handles a source without pods: waits if its maker may make others, else drops it."""
        maker = source.maker
        identity = maker.uid if maker is not None else uid
        with self._lock:
            others = any(each.offers for each in self._of(identity) if each is not source)
        if maker is not None and not others and is_there(self._cluster.client, source.namespace, maker):
            return AGAIN
        with self._lock:
            if source.offers:
                return 0.0
            self._sources.pop(uid, None)
            self._forget_maker(source)
            others = any(each.offers for each in self._of(identity))
            told = None if others else self._told.pop(identity, None)
            if not others:
                self._said.pop(identity, None)
        if others:
            self._tell(identity)
        elif told is not None:
            self._report(WorkGone(identity))
        return None


def by_age(offer: Offer) -> tuple[int, int, str]:
    """Sort key: the oldest first."""
    return offer.age
