"""From the body of a submission to what the service takes."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

from pliant.api.requests.models import Compute, Distributed, DistributedSpec, Inference, Pair, Spec, Submit
from pliant.api.requests.placement import placing_of
from pliant.control.board.view import Board
from pliant.control.errors import BadRequest, NotFound
from pliant.control.submit.placing import named_within
from pliant.control.submit.submission import Distribution, GroupAsk, Submission
from pliant.model.quantity import parse_bytes
from pliant.model.workload import Kind, Launch, Port, SubGroup

QUIET = frozenset({"imagePullPolicy", "createHomeDir", "templateId", "useGivenNameAsPrefix"})
"""Fields that do nothing here and of which nobody has to be told."""


_WHAT_RUNS = ("command", "commandArgv", "args", "argsArgv")


def submission(body: Submit, kind: Kind, board: Board) -> tuple[Submission, list[str]]:
    """What is asked for, and notices about what was asked for in vain."""
    spec, compute = body.spec, body.spec.compute or Compute()
    project = body.projectId or body.projectName
    if not project:
        raise BadRequest("It is not said in which project.", "Set projectId (its id or name) or projectName.")
    cluster = board.cluster.uuid if board.cluster is not None else ""
    if body.clusterId and body.clusterId != cluster:
        raise NotFound(f"There is no cluster {body.clusterId!r}.", f"This one is {cluster}; or leave it out.")
    prefixed = body.useGivenNameAsPrefix or body.nameBase is not None
    ask = Submission(
        project=project,
        launch=_launch(spec),
        kind=kind,
        name=None if prefixed else body.name,
        name_base=body.nameBase or body.name if prefixed else None,
        name_index=body.nameStyle == "index",
        distribution=_distribution(body) if isinstance(body, Distributed) else None,
        elastic=spec.elastic,
        elastic_doubling=spec.elasticDoubling,
        replicas=_replicas(body),
        ports=_ports(body),
        runs=spec.completions,
        at_once=spec.parallelism,
        priority=spec.priorityClass or None,
        preemptible=None if spec.preemptibility is None else spec.preemptibility == "preemptible",
        pools=tuple(_pool(pool, board) for pool in spec.nodePools or ()),
        node_type=spec.nodeType or "",
        placing=placing_of(spec),
        stale_grace=_span(spec.staleGraceSeconds),
        preemption_delay=_span(spec.preemptionDelaySeconds) or 0,
        max_runtime=_span(spec.maxRuntimeSeconds),
        backoff_limit=spec.backoffLimit,
        restart=spec.restartPolicy == "Always",
        terminate_after_preemption=bool(spec.terminateAfterPreemption),
        ttl=_ms(spec.autoDeletionTimeAfterCompletionSeconds),
        category=spec.category or "",
        source=body.source or "Control-plane",
        labels=_pairs(spec.labels),
        annotations=_pairs(spec.annotations),
    )
    return _needing(ask, compute), [*_not_yet(body), *_in_vain(body, compute)]


def _needing(ask: Submission, compute: Compute) -> Submission:
    """The same with what each of its tasks needs."""
    _check_kind(compute)
    return replace(
        ask,
        gpus=_milli(compute.gpuDevicesRequest, "gpuDevicesRequest"),
        portion=_milli(compute.gpuPortionRequest, "gpuPortionRequest"),
        gpu_memory=_bytes(compute.gpuMemoryRequest, "gpuMemoryRequest"),
        portion_limit=_milli(compute.gpuPortionLimit, "gpuPortionLimit"),
        gpu_memory_limit=_bytes(compute.gpuMemoryLimit, "gpuMemoryLimit"),
        cpu=_milli(compute.cpuCoreRequest, "cpuCoreRequest"),
        memory=_bytes(compute.cpuMemoryRequest, "cpuMemoryRequest"),
    )


def _distribution(body: Distributed) -> Distribution:
    """A master is like the workers unless it is described; described as none it is none."""
    spec = body.spec
    if spec.taskGroups:
        return _groups(body)
    if spec.subGroups or spec.minGroups is not None:
        raise BadRequest("spec.subGroups and spec.minGroups are about taskGroups.", "Name spec.taskGroups.")
    framework = spec.distributedFramework or "PyTorch"
    leader, lead = None, True
    if body.masterSpec is not None and not body.masterSpecSameAsWorker:
        leader = _leader(spec, body.masterSpec, framework)
    elif body.masterSpecSameAsWorker is False:
        lead = framework == "MPI"  # its ranks are started by the launcher: there always is one
    return Distribution(
        framework,
        workers=1 if spec.numWorkers is None else spec.numWorkers,
        least=spec.minReplicas,
        most=spec.maxReplicas,
        slots=1 if spec.slotsPerWorker is None else spec.slotsPerWorker,
        lead=lead and framework != "JAX",
        leader=leader,
    )


def _groups(body: Distributed) -> Distribution:
    """Groups that are named one by one."""
    spec = body.spec
    if spec.numWorkers is not None or body.masterSpec is not None:
        raise BadRequest(
            "spec.taskGroups goes with neither numWorkers nor masterSpec.", "Make the master a group."
        )
    return Distribution(
        spec.distributedFramework or "",
        slots=1 if spec.slotsPerWorker is None else spec.slotsPerWorker,
        groups=tuple(
            GroupAsk(
                item.name,
                _leader(spec, item.spec, ""),
                item.replicas,
                item.minReplicas,
                item.maxReplicas,
                item.parent,
            )
            for item in spec.taskGroups or ()
        ),
        levels=tuple(
            SubGroup(
                item.name, item.parent, item.minGroups, named_within(placing_of(Spec(topology=item.topology)))
            )
            for item in spec.subGroups or ()
        ),
        least_groups=spec.minGroups,
    )


def _leader(workers: DistributedSpec, own: Spec, framework: str) -> Submission:
    """What the master's part does not say is as for the workers; a launcher has no GPU unless it says so."""
    said = {name: getattr(own, name) for name in own.model_fields_set & set(Spec.model_fields)}
    if said.keys() & set(_WHAT_RUNS):
        said = {**dict.fromkeys(_WHAT_RUNS), **said}  # its command goes with no arguments of the workers
    compute = own.compute or (Compute() if framework == "MPI" else workers.compute or Compute())
    lead = Submission(
        "",
        _launch(workers.model_copy(update=said)),
        priority=own.priorityClass or None,
        placing=placing_of(own),
    )
    return _needing(lead, compute)


def _ports(body: Submit) -> tuple[Port, ...]:
    spec = body.spec
    found = []
    if isinstance(body, Inference) and body.spec.servingPort is not None and body.spec.servingPort.container:
        found.append(Port(body.spec.servingPort.container, "Serving"))
    found += [
        Port(entry.container, entry.serviceType or "ClusterIP", entry.external or 0)
        for entry in spec.ports or ()
        if entry.container is not None and not entry.exclude
    ]
    urls = [entry.container for entry in spec.exposedUrls or () if not entry.exclude]
    return (*found, *(Port(container, "URL") for container in urls if container is not None))


def _replicas(body: Submit) -> int:
    """As many as there would be without load; one where that would be none."""
    scaling = body.spec.autoscaling if isinstance(body, Inference) else None
    return 1 if scaling is None or scaling.minReplicas is None else max(scaling.minReplicas, 1)


def _not_yet(body: Submit) -> list[str]:
    """What is accepted and will be had later."""
    told = []
    scaling = body.spec.autoscaling if isinstance(body, Inference) else None
    if scaling is not None:
        few, many = scaling.minReplicas, scaling.maxReplicas
        if few == 0 or (many is not None and many != (1 if few is None else few)) or scaling.model_extra:
            number = _replicas(body)
            words = "1 replica runs" if number == 1 else f"{number} replicas run"
            told.append(f"There is no autoscaling yet: {words}, whatever the load.")
    elsewhere = [port for port in _ports(body) if port.external not in (0, port.container)]
    told += [
        f"Port {port.external} is not opened: on this machine the program is reached at its own port"
        f" {port.container}."
        for port in elsewhere
    ]
    if any(entry.url for entry in body.spec.exposedUrls or ()):
        told.append(
            "Addresses of exposedUrls cannot be chosen: on this machine it is localhost and the port."
        )
    return told


def _check_kind(compute: Compute) -> None:
    """The kind of request that is stated must be the one that is made."""
    kind = compute.gpuRequestType
    if kind == "memory" and compute.gpuMemoryRequest is None:
        raise BadRequest(
            "spec.compute.gpuRequestType is memory, but no memory is asked for.", "Set gpuMemoryRequest."
        )
    if kind == "memory" and compute.gpuPortionRequest is not None:
        raise BadRequest(
            "spec.compute.gpuRequestType is memory, but a portion is asked for.",
            "Leave out gpuPortionRequest.",
        )
    if kind == "portion" and compute.gpuMemoryRequest is not None:
        raise BadRequest(
            "spec.compute.gpuRequestType is portion, but memory is asked for.", "Leave out gpuMemoryRequest."
        )
    if compute.extendedResources:
        raise BadRequest("spec.compute.extendedResources cannot be had here.", "Leave it out.")


def _launch(spec: Spec) -> Launch:
    return Launch(
        image=spec.image or "",
        command=_words(spec.commandArgv, spec.command, "command"),
        args=_words(spec.argsArgv, spec.args, "args"),
        env=_variables(spec.environmentVariables or ()),
        working_dir=spec.workingDir or "",
        tty=bool(spec.tty),
        stdin=bool(spec.stdin),
        **({} if (grace := _ms(spec.terminationGracePeriodSeconds)) is None else {"grace": grace}),
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
        ) from error


def _variables(given: Sequence[Pair]) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for entry in given:
        if entry.exclude:
            continue
        if entry.value is None:
            raise BadRequest(
                f"The environment variable {entry.name!r} has no value.",
                "Only plain values can be given: secrets, config maps and fields cannot be read here.",
            )
        found[entry.name] = entry.value
    return tuple(found.items())


def _pairs(given: Sequence[Pair] | None) -> tuple[tuple[str, str], ...]:
    return tuple(
        sorted({entry.name: entry.value or "" for entry in given or () if not entry.exclude}.items())
    )


def _milli(value: float | None, field: str) -> int | None:
    """Thousandths, if there are no smaller parts."""
    if value is None:
        return None
    milli = Decimal(repr(value)) * 1000
    if milli != milli.to_integral_value():
        raise BadRequest(f"spec.compute.{field} is {value!r}: at most three decimals are possible.")
    return int(milli)


def _bytes(value: str | None, field: str) -> int | None:
    if value is None:
        return None
    try:
        amount = parse_bytes(value)
    except ValueError as error:
        raise BadRequest(f"spec.compute.{field}: {error}.") from error
    if amount >= 2**62:
        raise BadRequest(f"spec.compute.{field}: {value} is more than any machine has.")
    return amount


def _ms(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * 1000


def _span(seconds: float | None) -> int | None:
    """Ms; -1 stays what it is: for ever."""
    return None if seconds is None else -1 if seconds < 0 else round(seconds * 1000)


def _pool(key: str, board: Board) -> str:
    """The pool's name where its id was given; who asks for one that does not exist is told by the service."""
    return next((pool.name for pool in board.pools if key == pool.id), key)


def _in_vain(body: Submit, compute: Compute) -> list[str]:
    unknown = [name for name, value in (body.model_extra or {}).items() if value not in (None, [], {}, "")]
    for where, part in _parts(body):
        unknown += [
            f"{where}.{name}"
            for name, value in (part.model_extra or {}).items()
            if value not in (None, [], {}, "", False)
        ]
    unknown += [
        f"spec.compute.{name}"
        for name in ("cpuCoreLimit", "cpuMemoryLimit", "largeShmRequest")
        if getattr(compute, name)
    ]
    told = sorted(name[:80] for name in unknown if name.removeprefix("spec.") not in QUIET)
    return [f"These fields have no effect here: {', '.join(told[:20])}."] if told else []


def _parts(body: Submit) -> Iterator[tuple[str, Spec]]:
    """What describes tasks, by the name of its field."""
    yield "spec", body.spec
    if isinstance(body, Distributed):
        if body.masterSpec is not None:
            yield "masterSpec", body.masterSpec
        for at, group in enumerate(body.spec.taskGroups or ()):
            yield f"spec.taskGroups[{at}].spec", group.spec
