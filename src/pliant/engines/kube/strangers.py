"""Pods of a server whose database is lost: what a start left on each, so that a new one takes them in."""

import json
import logging
from collections.abc import Container, Mapping, Sequence
from functools import partial
from typing import Any

from lightkube import Client
from lightkube.resources.core_v1 import Pod

from pliant.control.ports import Stranger
from pliant.engines.kube.names import ORDER, SCHEDULER, namespace_of
from pliant.engines.kube.pods import Seen, seen
from pliant.model.order import Start
from pliant.model.workload import AttemptId

log = logging.getLogger(__name__)

Rows = Mapping[str, object]


def left(order: Start, rows: Rows, at: int) -> dict[str, str]:
    """The annotation of a pod from which its attempt can be taken into an empty store; a few kB."""
    name, about = order.workload.name, {"epoch": order.epoch, "cause": order.cause, "ordered_ms": at}
    return {ORDER: json.dumps({"name": name, **about, "rows": rows}, separators=(",", ":"))} if rows else {}


def strangers(client: Client, scheduler: str, name: str, known: Container[AttemptId]) -> Sequence[Stranger]:
    """The newest attempt of each task of the workloads that run here and of which an attempt is not known.
    Pods that are being deleted are left out, and those that others made: they are their makers'.

    `scheduler`: the name by which pods ask for it. `name`: the server's for its cluster; empty: it has none
    yet, so the pods of one other server are meant. Raises ValueError where there are several,
    or for one that cannot be read.
    """
    newest: dict[tuple[str, str], tuple[Seen, str]] = {}
    for each in client.list(Pod, namespace="*"):
        pod = seen(each)
        theirs = pod.found or pod.holds or pod.deleting or pod.scheduler != (scheduler or SCHEDULER)
        if theirs or name not in ("", pod.cluster) or pod.attempt is None or pod.attempt in known:
            continue
        key = (pod.attempt.workload, pod.attempt.task)
        before = newest.get(key)
        if before is None or before[0].attempt is None or before[0].attempt.number < pod.attempt.number:
            newest[key] = pod, ((each.metadata and each.metadata.annotations) or {}).get(ORDER, "")
    running = {key[0] for key, (pod, _) in newest.items() if pod.lives}
    found = [it for key, it in sorted(newest.items()) if key[0] in running]
    if len(names := sorted({pod.cluster for pod, _ in found})) > 1:
        raise ValueError(
            f"Pods of {len(names)} other servers run on this cluster: {', '.join(names)}. "
            "End those of all but one: kubectl delete pods --all-namespaces -l pliant/cluster=NAME."
        )
    if old := [f"{pod.namespace}/{pod.name}" for pod, said in found if not said]:
        log.warning("%d pods of an older release are not taken in: %s, ...", len(old), old[0])
    return [_stranger(pod, said) for pod, said in found if said]


def _stranger(pod: Seen, said: str) -> Stranger:
    """What is on a pod is believed about the project of its namespace alone."""
    assert pod.attempt is not None
    try:
        order: dict[str, Any] = dict(json.loads(said))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"What pod {pod.name} says of its start cannot be read. "
            f"End it: kubectl delete pod --namespace {pod.namespace} {pod.name}."
        ) from error
    return Stranger(pod.attempt, order, pod.gpus, partial(_owns, pod.namespace))


def _owns(namespace: str, project: str) -> bool:
    return namespace_of(project) == namespace
