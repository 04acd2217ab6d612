"""The Kubernetes engine: an attempt is a pod, a placement is a binding, and watches report the state."""

import logging
import threading
import time
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from httpx2 import HTTPError
from lightkube.resources.core_v1 import Pod

from pliant.control.errors import BadRequest
from pliant.control.fractions import Sharing, TaskUse
from pliant.control.ports import Input, Session, Sink
from pliant.control.submit.variables import Sealed, Variables
from pliant.engines.afar import Afar
from pliant.engines.kube.apiserver.cluster import Cluster
from pliant.engines.kube.apiserver.connection import Connection, Unreachable
from pliant.engines.kube.apiserver.leading import raise_epoch
from pliant.engines.kube.apiserver.names import FINALIZER, SCHEDULER
from pliant.engines.kube.apiserver.seen import Seen, seen, workload_of
from pliant.engines.kube.apiserver.trouble import trouble_of
from pliant.engines.kube.apiserver.watching import Follower
from pliant.engines.kube.apiserver.work import WorkQueue
from pliant.engines.kube.fractions.lent import Shared
from pliant.engines.kube.fractions.parts import Parts, in_parts, use_of
from pliant.engines.kube.nodes.machines import Machines
from pliant.engines.kube.nodes.nodebook import NodeBook
from pliant.engines.kube.others.waiting import WaitingPods
from pliant.engines.kube.pods.manifest import refusal
from pliant.engines.kube.pods.output import log_of
from pliant.engines.kube.pods.session import PodTunnels, begin, signal_all
from pliant.engines.kube.pods.variables import SealedSecrets
from pliant.engines.kube.resources.owners import Owners
from pliant.engines.kube.runs import ByWorkload, Run, Steps, shared
from pliant.model.fact import AttemptEnded, AttemptResized, Fact, ResizeDenied
from pliant.model.machine import Placement
from pliant.model.order import Resize, Start, Stop
from pliant.model.workload import Attempt, AttemptId, Launch, Workload

log = logging.getLogger(__name__)

WORKERS = 8
Outcome = AttemptEnded | AttemptResized | ResizeDenied

OPEN_SECONDS = 10.0
"""`open` returns after this time even if stray pods have not ended; until they end, they count as used."""


class KubeEngine(Afar):
    """See control.ports.Engine. The cluster holds the state: a new engine over it continues the work."""

    name = "kube"

    def __init__(
        self,
        connection: Connection,
        cluster: str,
        *,
        nodes: Mapping[str, str] | None = None,
        project_name: Callable[[str], str] = str,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        scheduler: str = SCHEDULER,
        sharing: Sharing | None = None,
        images: Mapping[str, str] | None = None,
        rows: Callable[[Start], Mapping[str, object]] = lambda order: {},
    ) -> None:
        """Takes over the connection. `cluster`: the server's name for its cluster; pods with another name are
        foreign. `scheduler`: the scheduler name of its pods. `nodes`: labels of its nodes. `images`: image by
        name. `rows`: the rows that a start follows from. Without `sharing` no pod gets a GPU fraction."""
        self._connection, client = connection, connection.client
        self._cluster = Cluster(client, cluster)
        self.tunnels = PodTunnels(client, self._pod)
        self._secrets, self.owners = SealedSecrets(self._cluster), Owners(self._cluster)
        self._clock, self._project_name = clock, project_name
        self._lock = threading.RLock()  # over all that follows; never held during a request to the cluster
        self._runs = ByWorkload[AttemptId, Run](lambda run: run.id.workload)
        self._pods = ByWorkload[tuple[str, str], Seen](workload_of)  # the live ones, and all of ours
        self._book = NodeBook(self._report, self._scheduled, self._ours, self.name)
        self._parts = parts = Parts(self._cluster, sharing, self._shared, self._gpu_memory)
        self._forgotten: set[str] = set()  # ids of workloads
        self._sink: Sink = lambda fact: None
        self._epoch, self._closed = 0, threading.Event()
        self._pod_watch = Follower(client, Pod, self._pods_listed, self._pod_changed, namespace="*")
        self._machines = Machines(client, self._book, self._lock, self._lose, nodes)
        self._waiting = waiting = WaitingPods(
            self._cluster, self._report, self.name, scheduler, self._runs, self._scheduled
        )
        means = (self._cluster, self._secrets, self.owners, self._report, clock, project_name, rows)
        self._steps = Steps(*means, self._lock, waiting, parts, images or {})
        self._queue: WorkQueue | None = None
        self.trouble = lambda: trouble_of((self._pod_watch, self._machines.nodes), self._queue)

    def _report(self, fact: Fact) -> None:
        run = self._runs.get(fact.attempt) if isinstance(fact, Outcome) else None
        if run is not None:
            self._note(run, over=isinstance(fact, AttemptEnded))
            for device in run.place.uuids if in_parts(run.place) else ():
                self._look_at((device,))
        if not self._closed.is_set():
            self._sink(fact)
        if run is not None:  # a device that exists only for its placement goes after its end is reported
            with self._lock:
                self._book.look(run.place.node)

    def _note(self, run: Run, *, over: bool) -> None:
        place = run.place
        if run.fitting is not None:  # it gets this soon, and the scheduler counts it already
            place = replace(place, cpu=run.fitting[0], memory=run.fitting[1])
        with self._lock:
            self._book.changed(run.id, place, over=over)

    # ---- life ----

    def open(self, sink: Sink, known: Iterable[Attempt], epoch: int) -> None:
        """Raises StaleEpoch, Unreachable."""
        self._sink, self._epoch = sink, epoch
        try:
            self._adopt(known)
        except HTTPError as error:
            raise Unreachable(f"the cluster does not let us in: {error}. Try `kubectl get nodes`.") from error

    def _adopt(self, known: Iterable[Attempt]) -> None:
        raise_epoch(self._cluster, self._epoch)
        for attempt in known:
            if attempt.exit is None:
                grace, began = None if attempt.stop_ordered is None else 0, attempt.started is not None
                run = self._run(attempt.id, attempt.placement)
                run.grace, run.gone = grace, began  # until its pod is listed
                self._book.place(attempt.id, attempt.placement)
        self._pod_watch.open()
        self._end_strays()
        self._machines.open()
        for run in sorted(self._runs.values(), key=lambda run: run.id):
            run.lost = run.place.node not in self._book
            if run.pod is not None:
                self._steps.tell(run, run.pod)
        self._waiting.open()
        self._queue = WorkQueue(self._work, WORKERS)
        strays = [key for key, pod in list(self._pods.items()) if self._stray(pod)]
        for key in (*self._runs, *strays, *((device,) for device in self._parts.devices())):
            self._queue.add(key)

    def _end_strays(self) -> None:
        """Asks pods of ours that the store does not know to end, e.g. after a restore, and waits."""
        deadline = time.monotonic() + OPEN_SECONDS
        strays = [pod for pod in self._pods.values() if self._stray(pod)]
        for pod in strays:
            log.warning("ends pod %s/%s: its attempt %s is not known", pod.namespace, pod.name, pod.attempt)
            self._steps.end_stray(pod)
        while time.monotonic() < deadline:
            if not any(pod.lives and self._stray(pod) for pod in list(self._pods.values())):
                return
            time.sleep(0.02)

    def close(self) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        self._pod_watch.close()
        self._machines.close()
        self._waiting.close()
        if self._queue is not None:
            self._queue.close()
        self._connection.end()
        self._pod_watch.join()
        self._machines.join()
        self._connection.close()

    # ---- orders ----

    def start(self, order: Start) -> None:
        if order.epoch >= self._epoch:
            with self._lock:
                run = self._run(order.attempt, order.placement)
                run.order, run.place = order, order.placement
                run.lost = order.placement.node not in self._book  # it went while the order came
                run.answers += run.exit is not None
                if run.exit is None:
                    self._book.place(order.attempt, order.placement)
            self._look_at(order.attempt)

    def _run(self, attempt: AttemptId, place: Placement) -> Run:
        return self._runs.get(attempt) or self._runs.put(attempt, Run(attempt, place))

    def stop(self, order: Stop) -> None:
        if order.epoch >= self._epoch:
            with self._lock:
                run = self._run(order.attempt, Placement(order.node))
                run.grace = order.grace if run.grace is None else run.grace
                run.answers += run.exit is not None
            self._look_at(order.attempt)

    def resize(self, order: Resize) -> None:
        run = self._runs.get(order.attempt)
        if order.epoch >= self._epoch and run is not None and run.exit is None:
            self._steps.resize(run, order.placement)
            self._note(run, over=False)
            self._look_at(order.attempt)

    def recorded(self, attempt: AttemptId) -> None:
        with self._lock:
            run = self._runs.get(attempt)
            if run is not None:
                run.recorded = True
        self._look_at(attempt)

    def answer(self, workload: str, why: str, *, taken: bool) -> None:
        self._waiting.answer(workload, why, taken=taken)

    def refuse(self, launch: Launch, variables: Variables) -> BadRequest | None:
        return refusal(launch)

    # ---- values of variables ----

    def seal(self, workload: str, sealed: Sealed) -> None:
        self._secrets.seal(workload, sealed)

    def sealed(self, workload: str) -> bool:
        return self._secrets.has(workload)

    def retain(self, workloads: Container[str]) -> None:
        self._secrets.retain(workloads)
        with self._lock:
            for key, pod in self._pods.items():
                if self._ours(pod) and pod.attempt is not None and pod.attempt.workload not in workloads:
                    self._forgotten.add(pod.attempt.workload)
                    self._look_at(key)

    # ---- what a task shows ----

    def allocation(self, attempt: AttemptId, document: Mapping[str, object]) -> None:
        """The pod's file shows the document as soon as its kubelet has the new annotation."""
        with self._lock:
            self._run(attempt, Placement("")).document = document
        self._look_at(attempt)

    def logs(
        self,
        attempt: AttemptId,
        *,
        follow: bool,
        tail: int | None,
        since: int | None,
        timestamps: bool = False,
    ) -> Iterator[bytes]:
        """`since` is rounded to whole seconds, the unit of the cluster's log API."""
        age = None if since is None else self._clock() - since
        way = (self._cluster.client, partial(self._pod, attempt), self._over(attempt))
        return log_of(*way, follow=follow, tail=tail, age=age, timestamps=timestamps)

    def _pod(self, attempt: AttemptId) -> Seen | None:
        with self._lock:
            run = self._runs.get(attempt)
            if run is not None:
                return run.pod
            mine = self._pods.of(attempt.workload)
            found = (pod for pod in mine if self._ours(pod) and pod.attempt == attempt)
            return None if attempt.workload in self._forgotten else next(found, None)

    def _over(self, attempt: AttemptId) -> Callable[[], bool]:
        def over() -> bool:
            run, pod = self._runs.get(attempt), self._pod(attempt)
            ended = run.exit is not None if run is not None else pod is None or not pod.lives
            return self._closed.is_set() or ended

        return over

    def exec(
        self, attempt: AttemptId, argv: Sequence[str], *, tty: bool, stdin: bool, rows: int, columns: int
    ) -> Session:
        pod, size = self._pod(attempt), (rows, columns)
        return begin(self._cluster.client, pod, attempt, argv, tty=tty, stdin=stdin, size=size)

    def signal(self, attempt: AttemptId, number: int) -> None:
        signal_all(self._cluster.client, self._pod(attempt), attempt, number)

    def input(self, attempt: AttemptId) -> Input:
        raise ValueError("what is typed reaches only jobs of the server's own machine, not pods")

    def uses(self) -> Mapping[AttemptId, TaskUse]:
        with self._lock:
            mine = (run for run in self._runs.values() if run.exit is None and in_parts(run.place))
            return {run.id: use_of(run.pod) for run in mine}

    def forget(self, workload: Workload) -> None:
        with self._lock:
            mine = self._runs.of(workload.id)
            if any(run.exit is None and (run.pod is not None or run.order is not None) for run in mine):
                raise ValueError(f"something of workload {workload.name} still runs: stop it first")
            self._forgotten.add(workload.id)
            for run in mine:
                self._runs.take(run.id)
        made = workload.origin is None or not workload.origin.makes  # pods of other makers have no secrets
        self._look_at(("forget", workload.id, made))  # no pair: pairs are pods, of any name

    # ---- the work queue ----

    def _look_at(self, key: Hashable) -> None:
        if self._queue is not None and not self._closed.is_set():
            self._queue.add(key)

    def _work(self, key: Hashable) -> float | None:
        match key:
            case AttemptId():
                run = self._runs.get(key)
                return None if run is None else self._steps.take(run)
            case ("forget", str(workload), bool(made)):
                with self._lock:
                    mine = [pod for pod in self._pods.of(workload) if self._ours(pod)]
                self._steps.forget(workload, mine, made=made)
            case (str(device),):
                return self._parts.tend(device)
            case (str(namespace), str(name)):
                pod = self._pods.get((namespace, name))
                if pod is not None and self._stray(pod):
                    return self._steps.end_stray(pod)
        return None

    def _ours(self, pod: Seen) -> bool:
        return pod.cluster == self._cluster.name

    def _scheduled(self, pod: Seen) -> bool:
        run = self._runs.get(pod.attempt) if self._ours(pod) and pod.attempt is not None else None
        return run is not None and not run.lost

    def kept(self) -> bool:
        """True if the agents of all nodes with GPUs write the limits there, and there is such a node."""
        with self._lock:
            return self._parts.kept(self._book.with_gpus())

    def _shared(self, device: str) -> Shared:
        with self._lock:
            return shared(device, self._runs.values(), filter(self._ours, self._pods.values()))

    def _gpu_memory(self, node: str, device: str) -> int:
        with self._lock:
            return self._book.gpu_memory(node).get(device, 0)

    def _stray(self, pod: Seen) -> bool:
        """True if it is ours, its attempt is not known, and it must end or go; other pods keep their logs."""
        if not self._ours(pod) or pod.attempt is None or pod.attempt in self._runs:
            return False
        if pod.found:  # its maker deletes it; here only the finalizer is removed
            return pod.deleting and not pod.lives and FINALIZER in pod.finalizers
        return pod.lives or pod.deleting or pod.attempt.workload in self._forgotten

    # ---- news from the watches ----

    def _pods_listed(self, pods: Sequence[Pod]) -> None:
        found = [(seen(pod), pod) for pod in pods]
        there = {(pod.namespace, pod.name) for pod, _ in found}
        for gone in [pod for key, pod in list(self._pods.items()) if key not in there]:
            self._see_pod(gone, there=False)
        self._waiting.retain(there)
        for each, pod in found:
            self._see_pod(each, there=True)
            self._waiting.see(each, pod, there=True)
        if self._queue is not None:
            self._queue.hurry()

    def _pod_changed(self, there: bool, pod: Pod) -> None:
        found = seen(pod)
        self._see_pod(found, there=there)
        self._waiting.see(found, pod, there=there)

    def _see_pod(self, pod: Seen, *, there: bool) -> None:
        key, ours = (pod.namespace, pod.name), self._ours(pod)
        with self._lock:
            before = self._pods.take(key)
            if there and (ours or pod.lives):
                self._pods.put(key, pod)
            self._book.pod(before, pod, there=there)
            run = self._runs.get(pod.attempt) if ours and pod.attempt is not None else None
            if run is not None and (run.pod is None or run.pod.uid == pod.uid):
                run.pod, run.gone = pod, not there
            holds = self._parts.see(pod, there=there)
            users = [run for run in self._runs.values() if pod.holds in run.place.uuids] if holds else []
        if holds:
            for each in users:
                self._look_at(each.id)
            self._look_at((pod.holds,))
        if run is not None:
            self._look_at(run.id)
            for device in run.place.uuids if pod.conf else ():
                self._look_at((device,))
        elif ours and not holds:
            self._look_at(key)

    def _lose(self, node: str) -> None:
        """Ends the node's attempts as lost; until then their pods are foreign if the node is back."""
        mine = [run for run in self._runs.values() if run.place.node == node and run.exit is None]
        for run in mine:
            run.lost = True
            self._waiting.renew(run.id.workload)
        self._book.node(node, None)
        for run in mine:
            self._note(run, over=True)
            self._look_at(run.id)
