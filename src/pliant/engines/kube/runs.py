"""One attempt on a cluster: its orders, what the cluster shows, and the next step that follows from both."""

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from pliant.control.ports import Sink
from pliant.engines.kube.apiserver.cluster import Cluster, Refused, owned
from pliant.engines.kube.apiserver.names import namespace_of
from pliant.engines.kube.apiserver.seen import End, Seen
from pliant.engines.kube.fractions.lent import Shared
from pliant.engines.kube.fractions.parts import BUDGET, Parts, in_parts
from pliant.engines.kube.others.waiting import WaitingPods
from pliant.engines.kube.pods.manifest import Document, manifest, note, seconds
from pliant.engines.kube.pods.variables import SealedSecrets
from pliant.engines.kube.resources.owners import Owners
from pliant.engines.kube.strangers import Rows, left
from pliant.model.fact import AttemptEnded, AttemptResized, AttemptStarted, ResizeDenied
from pliant.model.machine import Placement
from pliant.model.order import Start
from pliant.model.workload import AttemptId, Exit

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LOOK = 2.0
"""Seconds after which a step is checked again, even without news from the watches."""

RECENT = 2000
"""Milliseconds: a time from the cluster, in whole seconds, counts as now if it is less than this old."""

TRIES = 10
"""Looks, PAUSE seconds apart, for a start's pod that another controller makes; then the attempt is lost."""

PAUSE = 0.5

GRACE = 1
"""Grace period in seconds of a pod whose GPU fraction is no longer held for it."""

NEVER = 126
"""Exit code of an attempt that must not be tried again."""


@dataclass(slots=True)
class Run:
    id: AttemptId
    place: Placement
    order: Start | None = None
    grace: int | None = None  # ms; set once it must stop
    pod: Seen | None = None  # as last seen
    gone: bool = False  # its pod existed and is gone
    told: bool = False  # its start was reported
    refused: End | None = None  # why it will never start
    lost: bool = False  # with its node: the scheduler has given it up, even if the node comes back
    exit: Exit | None = None  # set when its end is reported
    recorded: bool = False  # its end is on the server's disk
    tries: int = 0  # looks for a pod that another controller makes
    document: Document | None = None  # what its workload has, as last given
    shown: Document | None = None  # the document that its pod shows
    fitting: tuple[int, int] | None = None  # millicores and bytes that were ordered and are not confirmed
    delay: str = ""  # why it has not changed yet, as last reported
    answers: int = 0  # orders that came after the end and are not answered yet


class ByWorkload(dict[K, V]):
    """A dict that finds the values of one workload without a scan of all: there may be ten thousand."""

    def __init__(self, workload: Callable[[V], str]) -> None:
        super().__init__()
        self._workload = workload
        self._keys: defaultdict[str, set[K]] = defaultdict(set)  # by workload

    def put(self, key: K, value: V) -> V:
        self.take(key)
        self[key] = value
        self._keys[self._workload(value)].add(key)
        return value

    def take(self, key: K) -> V | None:
        value = self.pop(key, None)
        if value is not None:
            workload = self._workload(value)
            self._keys[workload].discard(key)
            if not self._keys[workload]:
                del self._keys[workload]
        return value

    def of(self, workload: str) -> list[V]:
        return [self[key] for key in self._keys.get(workload, ())]


def shared(device: str, runs: Iterable[Run], ours: Iterable[Seen]) -> Shared:
    """Users of the device: live pods of ours, known or not, and attempts whose pods are still to come."""
    pods = [pod for pod in ours if pod.devices and not pod.holds and pod.lives and device in pod.gpus]
    there = {pod.attempt for pod in pods}
    coming = [
        share.memory
        for run in runs
        if run.exit is None and run.id not in there and in_parts(run.place)
        for share in run.place.shares
        if share.gpu == device
    ]
    return Shared(tuple(pods), len(coming), sum(coming))


class Steps:
    """The steps of runs. At any time one worker at most calls `take` for one run."""

    def __init__(
        self,
        cluster: Cluster,
        secrets: SealedSecrets,
        owners: Owners,
        sink: Sink,
        clock: Callable[[], int],
        project_name: Callable[[str], str],
        rows: Callable[[Start], Rows],
        lock: threading.RLock,
        waiting: WaitingPods,
        parts: Parts,
        images: Mapping[str, str],
    ) -> None:
        """Any code that sets `Run.pod` must hold `lock`. `images`: the image pulled for a name."""
        self._waiting, self._parts, self._images = waiting, parts, images
        self._cluster, self._secrets, self._sink, self._clock = cluster, secrets, sink, clock
        self._owners = owners
        self._project_name, self._rows, self._lock = project_name, rows, lock

    def take(self, run: Run) -> float | None:
        """Takes the next step; returns seconds until the next look, None if only news matter."""
        if run.exit is not None:
            while run.answers:
                run.answers -= 1
                self._sink(AttemptEnded(run.id, run.exit))
            if run.recorded and run.pod is not None and not run.gone and (run.pod.deleting or run.pod.found):
                self._cluster.release(run.pod)
            return None
        pod = run.pod
        if pod is None or run.gone:
            return self._without(run)
        if self.tell(run, pod):
            return None
        if run.document is not None and run.document is not run.shown and not pod.deleting:
            self._cluster.annotate(pod, note(run.document, run.id.task))
            run.shown = run.document
        if pod.stuck and run.refused is None:
            run.refused = End(error=pod.stuck)
        if run.grace is not None or run.refused is not None or run.lost:
            if pod.deleting:
                return None
            grace = seconds(run.grace or 0) if pod.node else 0
            return LOOK if self._cluster.evict(pod, grace) else BUDGET
        self._fit(run, pod)
        if pod.node and not pod.deleting and self._parts.lost(run.place, pod):
            self._cluster.evict(pod, GRACE)  # its part of the device may be given to others
            return LOOK
        if not pod.node and run.order is not None:
            if self._parts.in_the_way(run.place):
                return PAUSE
            self._cluster.bind(pod, run.order.placement.node)
            return LOOK
        return None

    def resize(self, run: Run, place: Placement) -> None:
        """Reports new shares at once: a pod keeps its devices. Orders new cores and memory."""
        if place.shares != run.place.shares:
            self._sink(AttemptResized(run.id, run.place.shares, self._clock()))
        run.fitting, run.delay = (place.cpu, place.memory), ""

    def _fit(self, run: Run, pod: Seen) -> None:
        """Takes the next step to the ordered cores and memory, or reports the outcome."""
        wanted = run.fitting
        if pod.found:  # only its maker sets its requests
            has, told = (pod.amount.cpu, pod.amount.memory), (run.place.cpu, run.place.memory)
            if pod.node and run.place.node and has != told:
                self._fits(run, *has)
        elif wanted is None or pod.since is None or pod.deleting:
            return
        elif pod.asked != wanted:
            try:
                self._cluster.resize(pod, *wanted)
            except Refused as error:
                run.fitting = None  # the next order tries again
                self._sink(ResizeDenied(run.id, str(error), later=False))
        elif (pod.granted or pod.asked) == wanted:  # nodes that report no grants cannot resize pods
            run.fitting = None
            self._fits(run, *wanted)
        elif pod.delay and pod.delay != run.delay:
            run.delay = pod.delay
            self._sink(ResizeDenied(run.id, pod.delay, later=not pod.infeasible))

    def _fits(self, run: Run, cpu: int, memory: int) -> None:
        run.place = replace(run.place, cpu=cpu, memory=memory)
        self._sink(AttemptResized(run.id, run.place.shares, self._clock(), cpu, memory))

    def end_stray(self, pod: Seen) -> float | None:
        """Takes the next step to end or free a stray pod; returns the seconds until the next try, or None."""
        if pod.found:
            self._cluster.release(pod)
        elif not pod.lives:
            self._cluster.remove(pod)
        elif not pod.deleting and not self._cluster.evict(pod, None):
            return BUDGET
        return None

    def forget(self, workload: str, pods: list[Seen], *, made: bool) -> None:
        """Removes our pods and releases others'; `made`: also the secrets, which only our pods have."""
        for each in pods:
            (self._cluster.release if each.found else self._cluster.remove)(each)
        if made:
            self._secrets.forget(workload)

    def tell(self, run: Run, pod: Seen) -> bool:
        """Reports what the pod shows; True once it has ended."""
        ran = pod.since is not None or (pod.end is not None and pod.end.known and not pod.end.error)
        if ran and not run.told and (pod.lives or run.order is not None):
            run.told = True
            self._sink(AttemptStarted(run.id, self._precise(pod.since)))
        if not pod.lives:
            self._end(run)
        return not pod.lives

    def _without(self, run: Run) -> float | None:
        """The next step of a run without a pod."""
        if run.gone or run.grace is not None or run.refused is not None or run.lost:
            self._end(run)
        elif run.order is not None:
            try:
                made = self._made(run, run.order)
            except Refused as error:
                code = None if error.later else NEVER
                run.refused = End(code=code, error=str(error), known=not error.later)
            else:
                if made is None:
                    return PAUSE
                with self._lock:
                    run.pod = run.pod or made  # the watch may have newer news
            return 0.0
        return None

    def _made(self, run: Run, order: Start) -> Seen | None:
        """The pod of the start; None while its devices or its pod are missing. Sets `gone` after TRIES looks
        in vain. Raises Refused."""
        if order.workload.origin is None or not order.workload.origin.makes:
            return self._create(run, order)
        if self._parts.in_the_way(order.placement):
            return None
        parts = in_parts(order.placement)
        try:
            given = self._parts.given(order) if parts else {}
            if given is None:
                return None
            notes = self._parts.notes(order, given) if parts else {}
        except Refused as error:
            self._waiting.refuse(order.workload.id, f"{error}.")
            raise
        claimed = self._waiting.claim(order, notes)
        run.tries += 1
        run.gone = claimed is None and run.tries >= TRIES
        return claimed

    def _create(self, run: Run, order: Start) -> Seen | None:
        """None while the devices of its GPU fractions are not held, or memory lent from them is not back."""
        parts = in_parts(order.placement)
        given = self._parts.given(order) if parts else {}
        if given is None:
            return None
        workload = order.workload
        project = self._project_name(workload.project)
        namespace = namespace_of(project)
        owner = self._owners.of(workload, namespace)
        secret = self._secrets.bring(workload.id, order.attempt.task.rpartition("-")[0], namespace, owner)
        if workload.framework:
            self._secrets.introduce(workload.id, namespace, owner)
        document, scheduler = run.document, self._waiting.scheduler
        body = manifest(order, self._cluster.name, scheduler, namespace, project, secret, document)
        body["metadata"] |= owned(owner)
        body["metadata"]["annotations"] |= left(order, self._rows(order), self._clock())
        main = body["spec"]["containers"][0]
        main["image"] = self._images.get(main["image"], main["image"])
        if parts:
            self._parts.dress(body, order, given)
        pod = self._cluster.create(body)
        if pod.attempt != order.attempt or pod.cluster != self._cluster.name:
            raise Refused(f"another pod has its name: kubectl delete pod --namespace {namespace} {pod.name}")
        run.shown = document
        return pod

    def _end(self, run: Run) -> None:
        run.exit = self._exit(run, run.pod)
        self._sink(AttemptEnded(run.id, run.exit))

    def _exit(self, run: Run, pod: Seen | None) -> Exit:
        end = (pod and pod.end) or End(known=False)
        at = self._precise(end.at)
        cut = pod is None or run.gone or pod.deleting
        if run.grace is not None and cut:
            return Exit(at, end.code, end.signal, stopped=True, oom=end.oom)
        if run.refused is not None:
            return Exit(at, run.refused.code, error=run.refused.error, lost=not run.refused.known)
        if cut or not end.known:  # deleted by another client, or rejected by its node
            return Exit(at, end.code, end.signal, lost=True, note=end.error)
        return Exit(at, end.code, end.signal, error=end.error, oom=end.oom)

    def _precise(self, at: int | None) -> int:
        """`at`, or now if it is unknown or so recent that whole seconds cannot tell."""
        now = self._clock()
        return now if at is None or now - at < RECENT else at
