"""Who makes pods like one, up to the object that a person made, and how many of them it wants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from lightkube import ApiError, Client
from lightkube.core.resource_registry import resource_registry
from lightkube.generic_resource import GenericNamespacedResource, create_namespaced_resource

from pliant.engines.kube.cluster import missing, status_of
from pliant.engines.kube.offers import TASK, OwnerRef

LEVELS = 4
"""So many owners above each other are looked at: a pod of a JobSet has two."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The pods of one group that are to be."""

    count: int  # in all
    at_once: int = 0  # so many at a time; 0: all
    together: bool = False  # they start together or not at all


@dataclass(frozen=True, slots=True)
class Maker:
    """The topmost object that owns a pod."""

    ref: OwnerRef
    groups: Mapping[str, Wanted]  # empty: as many as there are
    over: bool = False  # it makes no more pods
    failure: str = ""  # why it is over; empty: it did what it is for

    @property
    def uid(self) -> str:
        return self.ref.uid

    @property
    def at_once(self) -> int:
        """So many pods it keeps alive while it is not over."""
        return 0 if self.over else sum(each.at_once or each.count for each in self.groups.values())


def maker_of(client: Client, namespace: str, owner: OwnerRef) -> Maker:
    """Raises what the client raises. The topmost that we may read."""
    top = Maker(owner, {})
    for _ in range(LEVELS):
        body = _read(client, namespace, owner)
        if body is None:
            return top
        spec, status = body.get("spec") or {}, body.get("status") or {}
        top = Maker(owner, _groups(owner.kind, spec), *_outcome(status.get("conditions") or ()))
        above = [each for each in body["metadata"].get("ownerReferences", ()) if each.get("controller")]
        if not above:
            break
        owner = OwnerRef(above[0]["apiVersion"], above[0]["kind"], above[0]["name"], above[0]["uid"])
    return top


def is_there(client: Client, namespace: str, maker: Maker) -> bool:
    """False also of what we may not read."""
    return _read(client, namespace, maker.ref) is not None


def _read(client: Client, namespace: str, owner: OwnerRef) -> dict[str, Any] | None:
    """None if it is not there, another one has its name, or we may not read it."""
    group, _, version = owner.api.rpartition("/")
    plural = f"{owner.kind.lower()}s"
    kind = cast(
        type[GenericNamespacedResource],
        resource_registry.get(owner.api, owner.kind)
        or create_namespaced_resource(group, version, owner.kind, plural),
    )
    try:
        found = missing(lambda: client.get(kind, owner.name, namespace=namespace))
    except ApiError as error:
        if status_of(error) == 403:
            return None
        raise
    body = None if found is None else cast(Any, found).to_dict()
    return cast(dict[str, Any], body) if body is not None and body["metadata"]["uid"] == owner.uid else None


def _outcome(conditions: Sequence[Mapping[str, Any]]) -> tuple[bool, str]:
    """Whether it is over, and why it failed: Jobs, JobSets and training jobs say so in the same way."""
    said = {each["type"]: each for each in conditions if each.get("status") == "True"}
    if (failed := said.get("Failed")) is not None:
        words = [failed.get("reason"), failed.get("message")]
        return True, ": ".join(filter(None, words)) or "Failed"
    return not said.keys().isdisjoint(("Complete", "Completed", "Succeeded")), ""


def _groups(kind: str, spec: Mapping[str, Any]) -> Mapping[str, Wanted]:
    match kind:
        case "Job":
            return {TASK: _job(spec)}
        case "JobSet":
            return {
                each["name"].lower(): Wanted(
                    each.get("replicas", 1) * each["template"]["spec"].get("parallelism", 1), together=True
                )
                for each in spec.get("replicatedJobs", ())
            }
        case "PyTorchJob":
            return {
                role.lower(): Wanted(each.get("replicas", 1), together=True)
                for role, each in spec.get("pytorchReplicaSpecs", {}).items()
            }
        case _:
            count = spec.get("replicas")
            return {TASK: Wanted(count)} if isinstance(count, int) else {}


def _job(spec: Mapping[str, Any]) -> Wanted:
    at_once = spec.get("parallelism", 1)
    return Wanted(max(spec.get("completions") or at_once, 1), max(at_once, 1))
