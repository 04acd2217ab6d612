"""Finds the fields of a submission that have no effect because another field is set or missing."""

from collections.abc import Iterator, Mapping
from typing import Any

from pliant.api.requests.fields import OF_LAUNCH
from pliant.wire import submission as wire

_NEEDS = (
    ("elasticDoubling", "elastic"),
    ("keepPending", "dependencies"),
    ("dependencyAny", "dependencies"),
    ("compute.gpuMemoryLimit", "compute.gpuMemoryRequest"),
)
"""A field of a spec, and the field without which it has no effect."""

_OF_MPI_OPERATORS = ("mpiLauncherCreationPolicy", "sshAuthMountPath", "cleanPodPolicy")

_OF_A_GROUP = {
    "image", "command", "args", "commandArgv", "argsArgv", "compute", "environmentVariables",
    "capturedEnvironment", "storage", "priorityClass", "nodeAffinityRequired", "nodeAffinityPreferred",
    "podAffinity", "podAntiAffinity", "topology", "tolerations", *(field.key for field in OF_LAUNCH),
}  # fmt: skip
"""Fields that a master or a group may set for itself; all others are set for the whole."""


def idle_fields(body: wire.AnySubmission) -> Iterator[str]:
    """The paths of these fields."""
    given: Mapping[str, Any] = body
    spec: Mapping[str, Any] = given.get("spec", {})
    if given.get("nameBase") and given.get("name"):
        yield "name"
    if given.get("nameStyle") and not (given.get("nameBase") or given.get("useGivenNameAsPrefix")):
        yield "nameStyle"
    if given.get("useGivenNameAsPrefix") and not (given.get("name") or given.get("nameBase")):
        yield "useGivenNameAsPrefix"
    for name, other in _NEEDS:
        if _at(spec, name) and not _at(spec, other):
            yield f"spec.{name}"
    yield from (f"spec.{name}" for name in _OF_MPI_OPERATORS if spec.get(name))
    if given.get("masterSpecSameAsWorker") and given.get("masterSpec"):
        yield "masterSpec"
        return
    groups = {f"spec.taskGroups[{at}].spec": it for at, it in enumerate(spec.get("taskGroups", ()))}
    parts = {where: group.get("spec", {}) for where, group in groups.items()}
    for where, part in {"masterSpec": given.get("masterSpec", {}), **parts}.items():
        yield from (f"{where}.{name}" for name, value in part.items() if value and name not in _OF_A_GROUP)


def _at(spec: Mapping[str, Any], path: str) -> Any:
    first, _, rest = path.partition(".")
    return _at(spec.get(first, {}), rest) if rest else spec.get(first)
