"""Finds pods of others that a lost server had placed: their workloads, and what each has of its node."""

import logging
from collections.abc import Container, Iterable, Mapping, Sequence

from lightkube import Client
from lightkube.resources.core_v1 import Node as KubeNode
from lightkube.resources.core_v1 import Pod

from pliant.engines.kube.apiserver.seen import Seen
from pliant.engines.kube.nodes.nodes import memory_of, name_of
from pliant.engines.kube.others.found import as_one, workload_of
from pliant.engines.kube.others.offers import Offer, offer_of
from pliant.engines.kube.others.origins import maker_of
from pliant.engines.kube.others.waiting import Source, by_age
from pliant.model.machine import Gpu, Placement
from pliant.model.quantity import GPU
from pliant.model.workload import Attempt, AttemptId, Workload
from pliant.sched.world.device_share import share_on

log = logging.getLogger(__name__)

Found = tuple[Workload, Sequence[tuple[Attempt, bool]]]
"""A workload whose project is a name, and its attempts, each with whether it has ended."""


class Unclear(ValueError):
    """The devices or the attempt of a pod cannot be determined."""


def placed(
    client: Client,
    pods: Iterable[tuple[Pod, Seen]],
    scheduler: str,
    name: str,
    known: Container[AttemptId],
    engine: str,
) -> list[Found]:
    """The pods that name that scheduler and that the server of that name has placed. A workload with an
    unclear pod is left out: it runs on and counts as used."""
    sources: dict[str, Source] = {}
    holders: dict[str, Seen] = {}
    for pod, seen in pods:
        if seen.holds and seen.cluster == name and seen.lives:
            holders[seen.holds] = seen
        elif seen.found and seen.scheduler == scheduler:
            offer = offer_of(pod, seen)
            source = sources.setdefault(offer.source, Source(offer.source, namespace=seen.namespace))
            source.offers[seen.namespace, seen.name] = offer
    by_maker: dict[str, list[Source]] = {}
    for key, source in sources.items():
        offers = sorted(source.offers.values(), key=by_age)
        if not any(_marked(it.pod, name) and it.pod.attempt not in known for it in offers):
            continue
        if offers[0].owner or offers[0].together:
            source.maker = maker_of(client, source.namespace, offers[0])
        by_maker.setdefault(source.maker.uid if source.maker is not None else key, []).append(source)
    memory = {name_of(node): memory_of(node) for node in client.list(KubeNode)} if by_maker else {}
    found: list[Found] = []
    for identity, own in by_maker.items():
        offers = sorted((it for each in own for it in each.offers.values()), key=by_age)
        maker = as_one([it.maker for it in own if it.maker is not None])
        row = workload_of(identity, maker, offers, _starts, engine)
        try:
            newest = _newest(row, (it for it in offers if _marked(it.pod, name)))
            attempts = [_attempt(it, holders, memory) for it in newest if it.pod.attempt not in known]
        except Unclear as error:
            log.warning("%s is not taken in: %s. It runs on and counts as used.", row.origin, error)
            continue
        found.append((row, attempts))
    return found


def _starts(offer: Offer) -> bool:
    """True if a task could start as this pod, as WaitingPods decides once the server runs."""
    return offer.waits or (offer.alone and offer.pod.lives and not offer.pod.deleting)


def _marked(pod: Seen, name: str) -> bool:
    return pod.cluster == name and pod.attempt is not None


def _newest(row: Workload, offers: Iterable[Offer]) -> list[Offer]:
    """The newest pod of each task. Raises Unclear for a pod whose marks that server has not written."""
    found: dict[str, tuple[int, Offer]] = {}
    groups = {group.name: group for group in row.groups}
    for offer in offers:
        identity = offer.pod.attempt
        assert identity is not None
        group, _, index = identity.task.rpartition("-")
        most = groups[group].max if group in groups else 0
        if identity.workload != row.id or not (index.isdecimal() and int(index) < most) or offer.wrong:
            raise Unclear(offer.wrong or f"pod {offer.pod.name} is marked as {identity}")
        if found.get(identity.task, (-1, offer))[0] < identity.number:
            found[identity.task] = identity.number, offer
    return [found[task][1] for task in sorted(found)]


def _attempt(offer: Offer, holders: Mapping[str, Seen], memory: Mapping[str, int]) -> tuple[Attempt, bool]:
    """(attempt, whether it has ended). Raises Unclear."""
    pod, ask = offer.pod, offer.request
    assert pod.attempt is not None
    place = Placement(pod.node, (), ask.cpu, ask.memory)
    if pod.lives and ask.devices:
        start = f"{pod.node}/gpu-"
        numbers = {uuid.removeprefix(start) for uuid in pod.gpus if uuid.startswith(start)}
        if (
            len(numbers) != ask.devices
            or len(pod.gpus) != ask.devices
            or not all(map(str.isdecimal, numbers))
        ):
            raise Unclear(f"pod {pod.name} has not the GPUs that it asks for")
        shares = tuple(share_on(Gpu(uuid, 0, memory.get(pod.node, 0)), ask) for uuid in pod.gpus)
        if ask.shared and not all(_held(pod, holders.get(uuid)) for uuid in pod.gpus):
            raise Unclear(f"no pod holds the GPU of which pod {pod.name} has a part")
        if any(share.portion > GPU for share in shares):
            raise Unclear(f"node {pod.node} does not say how large its GPUs are")
        place = Placement(pod.node, shares, ask.cpu, ask.memory)
    return Attempt(pod.attempt, place, 0, "", ordered=offer.age[0]), not pod.lives


def _held(pod: Seen, holder: Seen | None) -> bool:
    return holder is not None and holder.node == pod.node and pod.devices == holder.devices[:1]
