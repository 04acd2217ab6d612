"""Turns the body of a submission into what the service takes."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast, get_type_hints

from pliant.api.requests.fields import OF_LAUNCH, OF_WORKLOAD, taken
from pliant.api.requests.idle_fields import idle_fields
from pliant.api.requests.placement import placing_of
from pliant.api.requests.volumes import volumes_of
from pliant.api.responses.spec import MASKED
from pliant.api.responses.times import instant
from pliant.api.schemas.models import without_effect
from pliant.control.board.view import Board
from pliant.control.errors import BadRequest, NotFound
from pliant.control.submit.placing import named_within
from pliant.control.submit.sequence import DependencyAsk, Start, indexes_of
from pliant.control.submit.submission import Distribution, GroupAsk, Submission
from pliant.control.submit.variables import Variables
from pliant.control.usecases.refit import Fitting
from pliant.model.quantity import parse_bytes
from pliant.model.workload import Kind, Launch, Port, SubGroup
from pliant.wire import submission as wire
from pliant.wire.together import WORKERS
from pliant.wire.workload import Fitting as FittingItem

WITHOUT_EFFECT = frozenset(
    {"spec.compute.cpuCoreLimit", "spec.compute.cpuMemoryLimit", "spec.compute.largeShmRequest"}
)
QUIET = frozenset({"imagePullPolicy", "createHomeDir", "capturedVariables"})
"""Fields that have no effect here and get no notice."""

_WHAT_RUNS = ("command", "commandArgv", "args", "argsArgv")
_TYPES: Mapping[Kind, Any] = {Kind.DISTRIBUTED: wire.Distributed, Kind.INFERENCE: wire.Inference}


def parse_submission(body: wire.AnySubmission, kind: Kind, board: Board) -> tuple[Submission, list[str]]:
    """The submission, and notices about what has no effect. Raises BadRequest, NotFound."""
    spec: wire.Spec = body.get("spec", {})
    serving = cast("wire.InferenceSpec", spec if kind is Kind.INFERENCE else {})
    project = body.get("projectId") or body.get("projectName")
    if not project:
        raise BadRequest(
            "projectName is missing.", "Set projectId (its id or name) or projectName.", field="projectName"
        )
    check_cluster(body.get("clusterId"), board)
    name, base = body.get("name"), body.get("nameBase")
    prefixed = body.get("useGivenNameAsPrefix") or base is not None
    preemptibility = spec.get("preemptibility")
    asked = Submission(
        project=project,
        launch=_launch(spec),
        variables=_variables(spec),
        kind=kind,
        name=None if prefixed else name,
        name_base=base or name if prefixed else None,
        name_index=body.get("nameStyle") == "index",
        elastic=spec.get("elastic", False),
        ports=_ports(spec, serving),
        runs=spec.get("completions"),
        at_once=spec.get("parallelism"),
        priority=spec.get("priorityClass") or None,
        preemptible=None if preemptibility is None else preemptibility == "preemptible",
        semi_preemptible=preemptibility == "semi-preemptible",
        pools=tuple(_pool(pool, board) for pool in spec.get("nodePools", ())),
        placing=placing_of(spec),
        start=_start(spec),
        backoff_limit=spec.get("backoffLimit"),
        restart=spec.get("restartPolicy") == "Always",
        category=spec.get("category", ""),
        source=body.get("source") or "Control-plane",
        fields=taken(OF_WORKLOAD, spec),
        replicas=_replicas(serving),
    )
    if kind is Kind.DISTRIBUTED:
        asked = replace(asked, distribution=_distribution(cast("wire.Distributed", body)))
    notices = [*_not_yet(spec, serving, asked.ports), *_in_vain(body, kind)]
    return _needing(asked, spec.get("compute", {})), notices


def check_cluster(named: str | None, board: Board) -> None:
    """Raise NotFound if a cluster other than this one is named."""
    cluster = board.cluster_id
    if named and named != cluster:
        raise NotFound(
            f"There is no cluster {named[:60]!r}.",
            f"This one is {cluster}; or leave it out.",
            field="clusterId",
        )


def _start(spec: wire.Spec) -> Start:
    begin = spec.get("beginAt")
    try:
        moment = instant(begin) if begin else None
    except ValueError:
        raise BadRequest(
            f"spec.beginAt {begin!r} is not a time.",
            "Use RFC 3339, for example 2026-01-31T12:00:00Z.",
            field="spec.beginAt",
        ) from None
    array = spec.get("array")
    return Start(
        moment,
        tuple(DependencyAsk(one["on"], one.get("when", "afterok")) for one in spec.get("dependencies", ())),
        spec.get("dependencyAny", False),
        indexes_of(array["indexes"]) if array is not None else (),
        array.get("atOnce", 0) if array is not None else 0,
        spec.get("keepPending", False),
    )


def _needing(asked: Submission, compute: wire.Compute) -> Submission:
    """The submission with what each of its tasks needs."""
    _check_kind(compute)
    return replace(
        asked,
        gpus=_milli(compute, "gpuDevicesRequest") or None,  # Run:ai's clients send 0 for none
        portion=_milli(compute, "gpuPortionRequest"),
        gpu_memory=_bytes(compute, "gpuMemoryRequest"),
        portion_limit=_milli(compute, "gpuPortionLimit"),
        gpu_memory_limit=_bytes(compute, "gpuMemoryLimit"),
        cpu=_milli(compute, "cpuCoreRequest"),
        memory=_bytes(compute, "cpuMemoryRequest"),
    )


def parse_fitting(body: FittingItem) -> Fitting:
    cpu, memory = _milli(body, "cpuCoreRequest", ""), _bytes(body, "cpuMemoryRequest", "")
    return Fitting(cpu, memory, body.get("taskGroup", ""))


COMPUTE = "spec.compute."


def _milli(compute: Mapping[str, Any], name: str, within: str = COMPUTE) -> int | None:
    """The value in thousandths; None if it is not set. Raises BadRequest for smaller parts."""
    field = within + name
    value = compute.get(name)
    if value is None:
        return None
    milli = Decimal(repr(value)) * 1000
    if milli != milli.to_integral_value():
        raise BadRequest(f"{field} is {value!r}: at most three decimals are possible.", field=field)
    return int(milli)


def _bytes(compute: Mapping[str, Any], name: str, within: str = COMPUTE) -> int | None:
    field = within + name
    value = compute.get(name)
    if value is None:
        return None
    try:
        amount = parse_bytes(str(value))
    except ValueError as error:
        raise BadRequest(f"{field}: {error}.", field=field) from error
    if amount >= 2**62:
        raise BadRequest(f"{field}: {value} is larger than any machine.", field=field)
    return amount


def _distribution(body: wire.Distributed) -> Distribution:
    """The master is like the workers unless masterSpec describes it; it can be left out, except with MPI."""
    spec: wire.DistributedSpec = body.get("spec", {})
    if spec.get("taskGroups"):
        return _groups(body)
    if spec.get("subGroups") or "minGroups" in spec:
        raise BadRequest(
            "spec.subGroups and spec.minGroups need taskGroups.",
            "Name spec.taskGroups.",
            field="spec.subGroups",
        )
    framework = spec.get("distributedFramework", "PyTorch")
    master, same = body.get("masterSpec"), body.get("masterSpecSameAsWorker")
    leader, lead = None, True
    if master is not None and not same:
        leader = _leader(spec, master, framework)
    elif same is False:
        lead = framework == "MPI"  # the launcher starts MPI's ranks: there always is one
    return Distribution(
        framework,
        workers=spec.get("numWorkers", 1),
        least=spec.get("minReplicas"),
        most=spec.get("maxReplicas"),
        slots=spec.get("slotsPerWorker", 1),
        lead=lead and framework != "JAX",
        leader=leader,
    )


def _groups(body: wire.Distributed) -> Distribution:
    """The distribution of a body with taskGroups."""
    spec = body["spec"]
    master = body.get("masterSpec") or body.get("masterSpecSameAsWorker")
    if master or any(name in spec for name in WORKERS):
        raise BadRequest(
            f"spec.taskGroups excludes {', '.join(WORKERS)} and masterSpec.",
            "Make the master a group.",
            field="spec.taskGroups",
        )
    return Distribution(
        spec.get("distributedFramework", ""),
        slots=spec.get("slotsPerWorker", 1),
        groups=tuple(
            GroupAsk(
                item["name"],
                _leader(spec, item.get("spec", {}), ""),
                item.get("replicas", 1),
                item.get("minReplicas"),
                item.get("maxReplicas"),
                item.get("parent", ""),
            )
            for item in spec["taskGroups"]
        ),
        levels=tuple(
            SubGroup(
                item["name"],
                item.get("parent", ""),
                item.get("minGroups"),
                named_within(placing_of({"topology": item["topology"]} if "topology" in item else {})),
            )
            for item in spec.get("subGroups", ())
        ),
        least_groups=spec.get("minGroups"),
    )


_SPEC = frozenset(get_type_hints(wire.Spec))


def _leader(workers: wire.DistributedSpec, own: wire.Spec, framework: str) -> Submission:
    """A master or group: by default the workers' launch and resources; no resources for an MPI launcher."""
    whole: dict[str, Any] = {name: value for name, value in workers.items() if name in _SPEC}
    if own.keys() & set(_WHAT_RUNS):  # its own command does not get the workers' arguments
        whole = {name: value for name, value in whole.items() if name not in _WHAT_RUNS}
    launch: wire.Spec = {**whole, **own}  # type: ignore[typeddict-item]  # both are of that type
    compute = own.get("compute") or ({} if framework == "MPI" else workers.get("compute", {}))
    lead = Submission(
        "",
        _launch(launch),
        variables=_variables(launch),
        priority=own.get("priorityClass") or None,
        placing=placing_of(own),
    )
    return _needing(lead, compute)


def _ports(spec: wire.Spec, serving: wire.InferenceSpec) -> tuple[Port, ...]:
    port = serving.get("servingPort", {}).get("container")
    found = [] if port is None else [Port(port, "Serving")]
    found += [
        Port(entry["container"], entry.get("serviceType", "ClusterIP"), entry.get("external", 0))
        for entry in spec.get("ports", ())
        if "container" in entry and not entry.get("exclude")
    ]
    return (
        *found,
        *(
            Port(entry["container"], "URL")
            for entry in spec.get("exposedUrls", ())
            if "container" in entry and not entry.get("exclude")
        ),
    )


def _replicas(serving: wire.InferenceSpec) -> int:
    """Replicas without load, at least 1."""
    return max(serving.get("autoscaling", {}).get("minReplicas", 1), 1)


def _not_yet(spec: wire.Spec, serving: wire.InferenceSpec, ports: Sequence[Port]) -> list[str]:
    """Notices about what is accepted but not available yet."""
    told = []
    scaling = serving.get("autoscaling")
    if scaling is not None:
        few = scaling.get("minReplicas", 1)
        if few == 0 or scaling.get("maxReplicas", few) != few or without_effect(wire.Autoscaling, scaling):
            number = _replicas(serving)
            words = "1 replica runs" if number == 1 else f"{number} replicas run"
            told.append(f"There is no autoscaling yet: {words}, whatever the load.")
    told += [
        f"Port {port.external} is not opened: on this machine the program is reached at its own port"
        f" {port.container}."
        for port in ports
        if port.external not in (0, port.container)
    ]
    if any(entry.get("url") for entry in spec.get("exposedUrls", ())):
        told.append(
            "Addresses of exposedUrls cannot be chosen: on this machine it is localhost and the port."
        )
    return told


def _check_kind(compute: wire.Compute) -> None:
    """Raise BadRequest if gpuRequestType contradicts the other fields, and for extendedResources."""
    kind = compute.get("gpuRequestType")
    portion, memory = compute.get("gpuPortionRequest"), compute.get("gpuMemoryRequest")
    if kind == "memory" and memory is None:
        raise BadRequest(
            "spec.compute.gpuRequestType is memory, but gpuMemoryRequest is missing.",
            "Set gpuMemoryRequest.",
            field="spec.compute.gpuMemoryRequest",
        )
    if kind == "memory" and portion is not None:
        raise BadRequest(
            "spec.compute.gpuRequestType is memory, but gpuPortionRequest is set.",
            "Leave out gpuPortionRequest.",
            field="spec.compute.gpuPortionRequest",
        )
    if kind == "portion" and memory is not None:
        raise BadRequest(
            "spec.compute.gpuRequestType is portion, but gpuMemoryRequest is set.",
            "Leave out gpuMemoryRequest.",
            field="spec.compute.gpuMemoryRequest",
        )
    if compute.get("extendedResources"):
        raise BadRequest(
            "spec.compute.extendedResources is not supported.",
            "Leave it out.",
            field="spec.compute.extendedResources",
        )


def _launch(spec: wire.Spec) -> Launch:
    return Launch(
        image=spec.get("image", ""),
        command=_words(spec.get("commandArgv"), spec.get("command"), "command"),
        args=_words(spec.get("argsArgv"), spec.get("args"), "args"),
        volumes=volumes_of(spec.get("storage", {})),
        **taken(OF_LAUNCH, spec),
    )


def _words(exact: Sequence[str] | None, text: str | None, field: str) -> tuple[str, ...]:
    if exact is not None:
        return tuple(exact)
    try:
        return tuple(shlex.split(text or ""))
    except ValueError as error:
        raise BadRequest(
            f"spec.{field} cannot be split into words: {error}.",
            "Close every quote, or send commandArgv and argsArgv.",
            field=f"spec.{field}",
        ) from error


def _variables(spec: wire.Spec) -> Variables:
    found: dict[str, str] = {}
    for entry in spec.get("environmentVariables", ()):
        if entry.get("exclude"):
            continue
        if "value" not in entry:
            raise BadRequest(
                f"The environment variable {entry['name']!r} has no value.",
                "Only plain values are supported, not secrets, config maps or fields.",
                field="spec.environmentVariables",
            )
        if entry["value"] == MASKED:
            raise BadRequest(
                f"The value of the environment variable {entry['name']!r} is hidden ({MASKED}).",
                "Give the value itself: no output of Pliant shows it.",
                field="spec.environmentVariables",
            )
        found[entry["name"]] = entry["value"]
    captured = spec.get("capturedEnvironment")
    if captured is None:
        return Variables(tuple(found.items()))
    return Variables(tuple(found.items()), tuple(captured["variables"].items()), captured.get("whole", False))


def _pool(key: str, board: Board) -> str:
    """The name of the pool with that id; any other key unchanged: the service refuses an unknown pool."""
    return next((pool.name for pool in board.pools if key == pool.id), key)


def _in_vain(body: wire.AnySubmission, kind: Kind) -> list[str]:
    given = without_effect(_TYPES.get(kind, wire.Submission), body)
    compute = body.get("spec", {}).get("compute", {})
    given += [name for name in WITHOUT_EFFECT if compute.get(name.removeprefix("spec.compute."))]
    given += [name for name in idle_fields(body) if name not in given]
    return told_of(name for name in given if name.removeprefix("spec.") not in QUIET)


def told_of(fields: Iterable[str]) -> list[str]:
    """A notice about fields that were accepted and have no effect."""
    told = sorted(name[:80] for name in fields)
    return [f"These fields have no effect here: {', '.join(told[:20])}."] if told else []
