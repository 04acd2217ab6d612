"""Reads what a server whose database is lost has left on its cluster, so that a new server can take it in:
the start recorded on each pod, the objects that show rows, and the pods of others that it placed."""

import json
import logging
from collections.abc import Container, Mapping
from functools import partial
from typing import Any

from lightkube import Client
from lightkube.resources.core_v1 import Pod

from pliant.control.left import GONE, Left
from pliant.control.ports import Stranger
from pliant.engines.kube.apiserver.names import ORDER, SCHEDULER
from pliant.engines.kube.apiserver.seen import Seen, seen
from pliant.engines.kube.others.placed import placed
from pliant.engines.kube.resources.remnants import owns, remnants
from pliant.model.order import Start
from pliant.model.workload import AttemptId

log = logging.getLogger(__name__)

Rows = Mapping[str, object]


def left(order: Start, rows: Rows, at: int) -> dict[str, str]:
    """The annotation of a pod from which an empty store can take in its attempt: a few kB; else {}."""
    name, about = order.workload.name, {"epoch": order.epoch, "cause": order.cause, "ordered_ms": at}
    return {ORDER: json.dumps({"name": name, **about, "rows": rows}, separators=(",", ":"))} if rows else {}


OBJECTS = ",workloads.pliant.dev,projects.pliant.dev,departments.pliant.dev,nodepools.pliant.dev"
CURE = "kubectl delete pods{} --all-namespaces --wait=false -l pliant/cluster=NAME"


def what_is_left(
    client: Client, scheduler: str, name: str, known: Container[AttemptId], engine: str = ""
) -> Left:
    """The newest unknown attempt of each task of the workloads that run here. In an empty store also all that
    the objects record, so attempts that ended meanwhile too.

    `scheduler`: the scheduler name of its pods. `name`: the server's name for its cluster; empty: it has none
    yet, so the result is about the one other server. `engine`: the engine's name; empty: pods of others are
    left out. Raises ValueError if there are several servers, or for a pod that cannot be read.
    """
    asked = scheduler or SCHEDULER
    objects = [] if name else list(remnants(client, asked))
    shown = {one.identity for _, one in objects if one.phase not in GONE}
    pods = [(pod, seen(pod)) for pod in client.list(Pod, namespace="*")]
    mine = [(pod, it) for pod, it in pods if it.scheduler == asked]
    newest: dict[tuple[str, str], tuple[Seen, str]] = {}
    for each, pod in mine:
        if pod.found or pod.holds or pod.attempt is None or name not in ("", pod.cluster):
            continue
        if pod.attempt in known:
            continue
        key = (pod.attempt.workload, pod.attempt.task)
        before = newest.get(key)
        if before is None or before[0].attempt is None or before[0].attempt.number < pod.attempt.number:
            newest[key] = pod, ((each.metadata and each.metadata.annotations) or {}).get(ORDER, "")
    running = {key[0] for key, (pod, _) in newest.items() if pod.lives and not pod.deleting} | shown
    found = [
        it for key, it in sorted(newest.items()) if key[0] in running and (it[0].lives or key[0] in shown)
    ]
    names = {pod.cluster for pod, _ in found} | {whose for whose, _ in objects if whose}
    names = names or {it.cluster for _, it in mine if it.found and it.lives and it.attempt is not None}
    if len(names) > 1:
        told = f"Pods of {len(names)} other servers are on this cluster, or their objects: "
        cure = CURE.format(OBJECTS if objects else "")
        raise ValueError(f"{told}{', '.join(sorted(names))}. Delete what is of all but one: {cure}.")
    whose = next(iter(names), name)
    if old := [f"{pod.namespace}/{pod.name}" for pod, said in found if not said]:
        log.warning("%d pods of an older release are not taken in: %s, ...", len(old), old[0])
    silent = {pod.attempt.workload for pod, said in found if not said and pod.attempt is not None}
    return Left(
        [_stranger(pod, said) for pod, said in found if said],
        [one for _, one in objects if one.identity not in silent or not one.identity],
        placed(client, pods, asked, whose, known, engine) if engine and whose else [],
        whose,
    )


def _stranger(pod: Seen, said: str) -> Stranger:
    """What a pod records is trusted only about the project of the pod's namespace."""
    assert pod.attempt is not None
    try:
        order: dict[str, Any] = dict(json.loads(said))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"What pod {pod.name} says of its start cannot be read. "
            f"End it: kubectl delete pod --namespace {pod.namespace} {pod.name}."
        ) from error
    return Stranger(pod.attempt, order, pod.gpus, partial(owns, pod.namespace), not pod.lives)
