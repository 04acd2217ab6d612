"""Builds the workload that pods of others form: all pods of one maker, or one pod alone."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from pliant.engines.kube.apiserver.seen import Seen
from pliant.engines.kube.others.offers import PLUGINS, POD_GROUP, GroupRef, Offer, same
from pliant.engines.kube.others.origins import Maker, Wanted
from pliant.model.origin import Origin
from pliant.model.workload import Kind, TaskGroup, Workload


def workload_of(
    identity: str, maker: Maker | None, offers: list[Offer], free: Callable[[Offer], bool], engine: str
) -> Workload:
    """The workload that these pods form, the oldest first; its project is a name. `free`: true if a task
    could be started as that pod."""
    first = offers[0]
    by_group: dict[str, list[Offer]] = {}
    for offer in offers:
        by_group.setdefault(offer.group, []).append(offer)
    wanted = dict(maker.groups) if maker is not None else {}
    gang = maker is not None and maker.gang
    if maker is not None and maker.least:
        wanted = groups_of(maker, offers)
    groups, ready = [], []
    for name in sorted(wanted.keys() | by_group.keys()):
        pods = by_group.get(name, [])
        ask = wanted.get(name) or Wanted(len(pods))
        groups.append(_group(name, ask, pods[0] if pods else first, alone=not gang))
        ready.append((name, sum(map(free, pods))))
    kind, name = (maker.ref.kind, maker.ref.name) if maker is not None else ("Pod", first.pod.name)
    alone = maker is None or maker.pod_maker is None  # no controller replaces such a pod
    return Workload(
        identity,
        maker.name if maker is not None else name,
        first.project,
        Kind.DISTRIBUTED if gang else Kind.TRAINING,
        first.launch,
        tuple(groups),
        priority=first.priority,
        preemptible=first.preemptible,
        backoff_limit=0 if alone else 2**31,
        backoff_exact=True,
        priority_class=first.priority_class,
        source="Kubernetes",
        category="Train",
        origin=Origin(
            engine,
            kind,
            first.pod.namespace,
            name,
            tuple(ready),
            over=maker is not None and maker.over,
            failure=maker.failure if maker is not None else "",
        ),
    )


def as_one(makers: Sequence[Maker]) -> Maker | None:
    """One maker for all of a workload's pods; None without any. A PodGroup's is over when all of them are."""
    if not makers:
        return None
    failures = [it.failure for it in makers if it.failure]
    over = all(it.over for it in makers)
    return replace(makers[0], over=over, failure=failures[0] if over and failures else "")


def groups_of(maker: Maker, offers: list[Offer]) -> dict[str, Wanted]:
    """The groups of a PodGroup: the oldest pods are its core, and missing pods count like the oldest."""
    below = maker.below.groups.values() if maker.below is not None else ()
    pods = [it for it in offers if not it.pod.deleting and not (maker.below and _failed(it.pod))] or offers[
        :1
    ]
    there, core = [it.group for it in pods], [it.group for it in pods[: maker.least]]
    missing = max(maker.least, sum(each.count for each in below)) - len(pods)
    there += [there[0]] * missing
    core += [there[0]] * (maker.least - len(pods))
    return {group: Wanted(there.count(group), least=core.count(group)) for group in dict.fromkeys(there)}


def _failed(pod: Seen) -> bool:
    return pod.over and not (pod.end is not None and pod.end.code == 0)


def no_group(group: GroupRef) -> str:
    """Why a pod is not taken in that names a missing PodGroup."""
    unsay = f"label {POD_GROUP}" if group.api == PLUGINS else "schedulingGroup"
    return (
        f"PodGroup {group.name} of {group.api} is not there, or Pliant may not read it: "
        f"create it, or leave the {unsay} out."
    )


def _group(name: str, ask: Wanted, like: Offer, *, alone: bool) -> TaskGroup:
    """`alone`: its pods form no gang with those of other groups."""
    least = ask.least or int(alone and ask.count == 1)
    return same(
        TaskGroup(
            name,
            like.request,
            min=least,
            wanted=ask.count,
            max=ask.count,
            at_once=0 if least else ask.at_once,
            launch=like.launch,
            affinity=like.affinity,
            tolerations=like.tolerations,
        )
    )
