"""Makes changed rows: raised quotas, added machines, smaller requests."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from pliant.model.machine import NODE_TYPE, Gpu, Node
from pliant.model.quantity import GPU
from pliant.model.tenancy import Department, Project, Quota, with_quota
from pliant.model.workload import Request, TaskGroup, Workload
from pliant.sched.explain.trial import Change
from pliant.sched.placement import eligibility
from pliant.sched.shares.entitlement import quota_of
from pliant.sched.world.chunks import Chunk
from pliant.sched.world.state import World


def with_group(row: Workload, at: int, group: TaskGroup) -> Workload:
    return replace(row, groups=(*row.groups[:at], group, *row.groups[at + 1 :]))


def sizes(request: Request) -> list[tuple[str, int, int, Callable[[int], Request]]]:
    """(resource, its amount, unit, a function that reduces the request by n) of all that may be smaller."""
    found: list[tuple[str, int, int, Callable[[int], Request]]] = []
    if request.gpu_memory:
        memory = request.gpu_memory
        unit = max(1, memory // 20)
        found.append(("GPU memory", memory, unit, lambda n: replace(request, gpu_memory=memory - n)))
    elif request.devices and request.portion < GPU:
        found.append(("gpu", request.portion, 50, lambda n: replace(request, portion=request.portion - n)))
    if request.devices > 1:
        size = request.devices * GPU
        found.append(("gpu", size, GPU, lambda n: replace(request, devices=request.devices - n // GPU)))
    if request.cpu > 100:
        found.append(("cpu", request.cpu, 100, lambda n: replace(request, cpu=request.cpu - n)))
    if request.memory > 2**30:
        found.append(("memory", request.memory, 2**30, lambda n: replace(request, memory=request.memory - n)))
    return found


_FIELDS = {
    ("quota", "gpu"): "gpu", ("quota", "cpu"): "cpu", ("quota", "memory"): "memory",
    ("limit", "gpu"): "gpu_limit", ("limit", "cpu"): "cpu_limit", ("limit", "memory"): "memory_limit",
}  # fmt: skip


def amount_of(world: World, queue: Project | Department, pool: str, kind: str, resource: str) -> int:
    """The present quota or limit of a queue, calculated if derived."""
    if kind == "quota" and resource == "gpu":
        return quota_of(world, queue.id, pool).gpu
    value: int = getattr(queue.quota(pool), _FIELDS[kind, resource])
    return value


def raised(
    world: World, queues: Iterable[Project | Department], pool: str, kind: str, resource: str, unit: int
) -> Callable[[int], Change]:
    """A function that gives the queues so many units more of their quota or limit."""
    rows = tuple(queues)

    def change(count: int) -> Change:
        puts: list[Project | Department] = []
        for queue in rows:
            now: Quota = queue.quota(pool)
            more = amount_of(world, queue, pool, kind, resource) + count * unit
            quota = replace(now, **{_FIELDS[kind, resource]: more})
            derived = queue.derived and kind != "quota"
            if isinstance(queue, Project):
                puts.append(replace(with_quota(queue, pool, quota), derived=derived))
            else:
                puts.append(replace(with_quota(queue, pool, quota), derived=derived))
        return Change(tuple(puts))

    return change


def machine(world: World, row: Workload, chunk: Chunk, pool: str, gpus: int) -> Node:
    """A node like the largest that the workload could use, with `gpus` GPUs and enough cores and memory."""
    cls = eligibility.nodes_for(world, row, pool)
    like = max(
        (node.row for node in cls.nodes.values() if node.row.gpus),
        key=lambda node: (max(gpu.memory for gpu in node.gpus), len(node.gpus), node.name),
        default=None,
    )
    least = max((part.request.gpu_memory for part in chunk.parts), default=0)
    memory = max(like.gpus[0].memory if like is not None else 80 * 10**9, least)
    labels = dict(like.labels) if like is not None else {}
    marked = world.pools.get(pool)
    if marked is not None and marked.label_key:
        labels[marked.label_key] = marked.label_value
    types = eligibility.types(world, row)
    if types and types != eligibility.NO_TYPE and labels.get(NODE_TYPE) not in types:
        labels[NODE_TYPE] = types[0]
    name = "one-more"
    return Node(
        name,
        tuple(Gpu(f"{name}.{index}", index, memory) for index in range(gpus)),
        cpu=max(sum(part.request.cpu for part in chunk.parts), 16_000 * gpus),
        memory=max(sum(part.request.memory for part in chunk.parts), 2**36 * gpus),
        labels=tuple(sorted(labels.items())),
        engine=like.engine if like is not None else "local",
    )
