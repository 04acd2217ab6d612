"""Portions: a workload is its core and the ordered steps above it, wanted first, then bonus."""

from dataclasses import replace
from functools import reduce

from pliant.model.machine import Placement
from pliant.model.quantity import GPU, Resources
from pliant.model.workload import Request, Task, TaskGroup, TaskKey, TaskPhase, Workload
from pliant.sched.world import subgroups
from pliant.sched.world.chunks import (
    CORE,
    NOTHING_MORE,
    SERVED,
    Chunk,
    Need,
    Part,
    Step,
    by_priority,
    core_priority,
    priority_of,
    rigid,
    workload_open,
)
from pliant.sched.world.holdings import Holdings


def chunk_of(
    world: Holdings, workload: Workload, step: Step, parts: tuple[Part, ...], reached: Step
) -> Chunk:
    first = parts[0]
    asked: tuple[object, ...] = ((first.request, first.most),)
    total, extends, by_memory = first.request.resources, first.extends, first.request.gpu_memory > 0
    if len(parts) > 1:
        asked = tuple((part.request, part.most) for part in parts)
        extends = any(part.extends for part in parts)
        if all(part.request is first.request for part in parts):
            total = total.times(len(parts))
        else:
            total = reduce(Resources.plus, (part.request.resources for part in parts))
            by_memory = any(part.request.gpu_memory for part in parts)
    return Chunk(
        workload,
        step,
        parts,
        total,
        by_memory,
        extends,
        world.shape_of((*asked, *world.nearness(workload, [part.task for part in parts]))),
        reached,
        core_priority(workload)
        if step is Step.CORE
        else priority_of(workload, workload.group(world.tasks[first.task].group)),
    )


def candidates(world: Holdings, workload: Workload, group: TaskGroup) -> tuple[int, list[Task]]:
    """(tasks that have a claim or have succeeded, tasks that could be given one: longest back-off last)."""
    have, idle = 0, []
    for task in world.tasks_of(workload.id):
        if task.group != group.name:
            continue
        if task.phase is TaskPhase.SUCCEEDED or world.claim_of(task.key) is not None:
            have += 1
        elif task.phase is not TaskPhase.FAILED:
            idle.append(task)
    idle.sort(key=lambda task: (task.retry_at or 0, task.index))
    return have, idle


def step_up(workload: Workload, devices: int, bound: int) -> int:
    """How many devices the next portion has of an elastic task that holds `devices` and may hold `bound`."""
    step = devices if workload.grow_doubling else 1
    return min(step, bound - devices)


def extension(request: Request, devices: int) -> Request:
    """The request of a running task for so many more devices of its node."""
    return replace(request, devices=devices, cpu=0, memory=0)


def need_of(world: Holdings, workload: Workload) -> Need:
    """The need of a workload. All that background work holds is bonus, and it counts as lacking nothing."""
    keys = world.keys_of(workload.id)
    if len(keys) == 1 and not workload.background and rigid(workload):
        return _need_of_one(world, workload, keys[0])
    need = _asked_for(world, workload)
    if not workload.background:
        return need
    claims = [claim for key in keys if (claim := world.claim_of(key)) is not None]
    gpu = sum(claim.gpu for claim in claims)
    more = need.stretchable or need.chunk is not None
    return Need(None, Resources(), (), need.holds, len(claims), gpu, more, need.broken, need.failed)


def next_chunk(world: Holdings, workload: Workload) -> Chunk | None:
    """The next core or wanted portion, of background work too."""
    return _asked_for(world, workload).chunk


def _asked_for(world: Holdings, workload: Workload) -> Need:
    keys = world.keys_of(workload.id)
    if len(keys) == 1 and rigid(workload):
        return _need_of_one(world, workload, keys[0])
    stock = subgroups.Stock(workload.priority)
    idles: dict[str, list[Task]] = {}
    lacks: list[tuple[Request, int]] = []
    holds = beyond = stretchable = False
    bonus = bonus_gpu = 0
    for group in by_priority(workload):
        have, idle = candidates(world, workload, group)
        stock.have[group.name], stock.idle[group.name], idles[group.name] = have, len(idle), idle
        claims = _claims(world, workload, group)
        holds = holds or bool(claims)
        if group.elastic:
            held, asked = len(claims[0].shares) if claims else 0, group.request.devices
            if idle:
                lacks.append((replace(group.request, devices=1), 1))
            if asked > max(1, held) and (idle or claims):
                lacks.append((extension(group.request, 1), asked - max(1, held)))
            beyond = beyond or held > 1
            bonus += max(0, held - asked)
            bonus_gpu += max(0, held - asked) * GPU
            stretchable = stretchable or (bool(claims) and not idle)
            continue
        if idle and have < group.wanted:
            lacks.append((group.request, min(len(idle), group.wanted - have)))
        beyond = beyond or have > group.min
        extra = max(0, min(len(claims), have - group.wanted))
        bonus += extra
        bonus_gpu += sum(claim.gpu for claim in claims[len(claims) - extra :])
        stretchable = stretchable or (bool(idle) and have < group.max)
    root = subgroups.tree(workload)
    core = subgroups.missing(root, stock)
    open_ = workload_open(workload)
    chunk: Chunk | None = None
    if core and open_:
        parts = tuple(part for group, count in core for part in _core(group, idles[group.name][:count]))
        chunk = chunk_of(world, workload, Step.CORE, parts, Step.CORE)
    elif core == [] and open_:
        chunk = _portion(world, workload, root, stock, idles, beyond)
    if core is None or not open_:
        lacks = []
    total = Resources()
    for request, count in lacks:
        total = total.plus(request.resources.times(count))
    by_memory = tuple(entry for entry in lacks if entry[0].gpu_memory)
    stretchable = stretchable and core == [] and open_
    failed = chunk is not None and any(world.tasks[part.task].retry_at is not None for part in chunk.parts)
    return Need(chunk, total, by_memory, holds, bonus, bonus_gpu, stretchable, holds and core != [], failed)


def _need_of_one(world: Holdings, workload: Workload, key: TaskKey) -> Need:
    """_asked_for() of the most frequent kind: one task, all or nothing."""
    if world.claim_of(key) is not None:
        return SERVED
    task = world.tasks[key]
    if task.phase.over or not workload_open(workload):
        return NOTHING_MORE
    group = workload.groups[0]
    request = group.request
    shape = world.shape_of(((request, 0), *world.nearness(workload, (key,))))
    total = world.amount_of(shape, request)
    priority = workload.priority if group.priority is None else group.priority
    memory, alone, parts = request.gpu_memory > 0, not workload.background, (Part(key, request),)
    chunk = Chunk(workload, CORE, parts, total, memory, False, shape, CORE, priority, alone)
    by_memory = ((request, 1),) if memory else ()
    return Need(chunk, total, by_memory, False, 0, 0, False, False, task.retry_at is not None)


def _claims(world: Holdings, workload: Workload, group: TaskGroup) -> list[Placement]:
    return [
        claim
        for task in world.tasks_of(workload.id)
        if task.group == group.name and (claim := world.claim_of(task.key)) is not None
    ]


def _core(group: TaskGroup, tasks: list[Task]) -> list[Part]:
    """The parts of these tasks of a group in a core; one device for an elastic task."""
    if group.elastic:
        one = replace(group.request, devices=1)
        return [Part(task.key, one, most=group.request.devices) for task in tasks]
    return [Part(task.key, group.request) for task in tasks]


def _portion(
    world: Holdings,
    workload: Workload,
    root: subgroups.Level,
    stock: subgroups.Stock,
    idles: dict[str, list[Task]],
    beyond: bool,
) -> Chunk | None:
    """The next wanted portion of a workload that has its core."""
    steps: dict[str, Part] = {}

    def more(group: TaskGroup) -> int:
        if not group.elastic:
            return 1 if idles[group.name] and stock.have[group.name] < group.wanted else 0
        claims = _claims(world, workload, group)
        if not claims or len(claims[0].shares) >= group.request.devices:
            return 0
        step = extension(group.request, step_up(workload, len(claims[0].shares), group.request.devices))
        key = next(t.key for t in world.tasks_of(workload.id) if t.group == group.name and not t.phase.over)
        steps[group.name] = Part(key, step, extends=True)
        return 1

    found = subgroups.portion(root, stock, more)
    parts: list[Part] = []
    for group, count in found:
        parts += [steps[group.name]] if group.name in steps else _core(group, idles[group.name][:count])
    if not parts:
        return None
    above = beyond or subgroups.spares(workload, root, stock.have)
    return chunk_of(world, workload, Step.WANTED, tuple(parts), Step.BONUS if above else Step.WANTED)


def bonus_chunks(world: Holdings, workload: Workload) -> list[Chunk]:
    """The bonus portions it could take next, best first. It must lack nothing that it asked for.

    Background work gets its core and its wanted portions in the same way.
    """
    if workload.background and (chunk := next_chunk(world, workload)) is not None:
        return [chunk]
    found: list[Chunk] = []
    for group in by_priority(workload):
        have, idle = candidates(world, workload, group)
        if group.elastic:
            task = next((t for t in world.tasks_of(workload.id) if t.group == group.name), None)
            claim = world.claim_of(task.key) if task is not None else None
            if task is None or claim is None:
                continue
            held = len(claim.shares)
            step = step_up(workload, held, held * 2 if workload.grow_doubling else held + 1)
            part = Part(task.key, extension(group.request, step), extends=True)
        elif idle and have < group.max:
            part = Part(idle[0].key, group.request)
        else:
            continue
        found.append(chunk_of(world, workload, Step.BONUS, (part,), Step.BONUS))
    return found


def without(claim: Placement, uuids: frozenset[str]) -> Placement:
    """The same placement without these devices."""
    return replace(claim, shares=tuple(share for share in claim.shares if share.gpu not in uuids))


def given_back(victim: Workload, claim: Placement, uuid: str, held: int, floor: int) -> frozenset[str]:
    """Devices that one step down frees, `uuid` among them: one, or by the doubling rule down to half."""
    count = 1 if not victim.grow_doubling else held - max(floor, held // 2)
    others = [share.gpu for share in reversed(claim.shares) if share.gpu != uuid]
    return frozenset([uuid, *others[: max(1, count) - 1]])


def whole(request: Request) -> bool:
    """True if it asks for whole devices."""
    return request.devices > 0 and not request.gpu_memory and request.portion >= GPU
