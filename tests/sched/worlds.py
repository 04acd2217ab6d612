"""Small worlds as text: `world("n1:2 n2:2", "team-a=2 team-b=2", "a1 team-a g1 @n1", "b1 team-b g1")`.

nodes     `n1:4` and options `:mem=24` (GiB a GPU, else 16) `:cpu=8` (cores, else 16 a GPU) `:ram=32` (GiB,
          else 64 a GPU) `:type=a` (label run.ai/type) `:pool=fast` (label pool) `:foreign=0,1` (device
          indices) `:down` `:drain` `:zone=a` `:rack=a` `:size=4` (labels) `:tasks=3` (most tasks at a time),
          `:taint=key.value/Effect` (see wishes)
projects  `team-a=2` is a project with quota 2 in pool `default`, `d1/team-a=2` one of department d1,
          `d1/=6` the department itself (else its quota is derived); `=?` derived, `=2+fast=1` quotas of
          further pools; options for all its pools: `:w=3` weight, `:max=4` limit, `:rank=200`, `:cpu=8`
          `:cpumax=8` cores, `:ram=8` `:rammax=8` GiB; `:pools=fast,default` its default pools, `:types=a,b`
          its allowed node types
pools     `fast` and options `:min=120` (minimum run time in seconds) `:spread` `:devices` (fractions spread
          over devices); its nodes carry the label pool=fast
jobs      `name project` and words: `g2` whole GPUs, `g0.5` a portion, `g0.5x2` of two devices each, `m5G`
          GPU memory, `by=ann` whose parts they are, `upto=0.8` or `upto=8G` a limit above the request,
          `c2` cores, `r4` GiB of memory, `x3`
          a gang of three, `x2-4` elastic gang min-wanted, `x2-4-6` min-wanted-max, `elastic` (one
          task, 1 .. node), `live` (resizes without restart), `double` (2021 rule), `p80` priority, `q20` a
          group's own, `np` non-preemptible, `semi` semi-preemptible, `bg` background, `int` a workspace,
          `pool=fast,default`, `type=a`, `ran=30` (running for 30 s, else an hour), `delay=60` (preemption
          delay), `waits=30` (submitted 30 s ago), `lasts=600` (declared run time), `on=`, `likes=`, `stands=`
          and `apart=rack` (see wishes), `within=rack` and `near=rack` (required and preferred level of ROOM);
          `+worker g1 x2` begins a second group, with wishes of its own. Where it is: `@n1` running there
          (`@n1,n2` a task each, `@n1*2` two devices, `@n1.1`
          device 1, `@n1.0.1` both), `~n1` stopping there with nothing claimed, `>n1` waiting with that
          claim.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pliant.model.booking import Booking
from pliant.model.ledger import Disruptions, PastUse
from pliant.model.machine import DEFAULT_POOL, Gpu, Node, NodePool, Placement, Share, Strategy
from pliant.model.quantity import GPU, parse_bytes, parse_cpu, parse_gpus
from pliant.model.tenancy import UNLIMITED, Department, Project, Quota
from pliant.model.topology import Topology, Within
from pliant.model.workload import Kind, Launch, Phase, Request, Task, TaskGroup, TaskPhase, Workload
from pliant.sched.world.state import World
from tests.sched.wishes import affinity, said_in, taint, tolerations

GIB = 2**30
NOW = 100_000_000
"""Where virtual time begins, in ms: far enough from 0 for things to have started long ago."""

Row = NodePool | Department | Project | Node | Workload | Task | PastUse | Disruptions | Booking
ROOM = Topology("room", ("zone", "rack"))
"""The topology of every world, to which `within=` and `near=` refer."""


@dataclass
class Scene:
    """Rows by identity, kept independently of the world under test."""

    pools: dict[str, NodePool] = field(default_factory=dict)
    departments: dict[str, Department] = field(default_factory=dict)
    projects: dict[str, Project] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    workloads: dict[str, Workload] = field(default_factory=dict)
    tasks: dict[tuple[str, str], Task] = field(default_factory=dict)
    past_uses: dict[tuple[str, str], PastUse] = field(default_factory=dict)
    disruptions: dict[str, Disruptions] = field(default_factory=dict)
    bookings: dict[str, Booking] = field(default_factory=dict)

    def put(self, row: Row) -> None:
        match row:
            case NodePool():
                self.pools[row.id] = row
            case Department():
                self.departments[row.id] = row
            case Project():
                self.projects[row.id] = row
            case Node():
                self.nodes[row.name] = row
            case Workload():
                self.workloads[row.id] = row
            case Task():
                self.tasks[row.key] = row
            case PastUse():
                self.past_uses[row.project, row.pool] = row
            case Disruptions():
                self.disruptions[row.project] = row
            case Booking():
                self.bookings[row.id] = row

    def rows(self) -> Iterable[Row]:
        """In the order in which a server loads them."""
        for table in (self.pools, self.departments, self.projects, self.nodes, self.workloads, self.tasks):
            yield from table.values()  # type: ignore[attr-defined]
        yield from self.past_uses.values()
        yield from self.disruptions.values()
        yield from self.bookings.values()

    def world(self) -> World:
        built = World()
        built.put(ROOM)
        for row in self.rows():
            built.put(row)
        return built

    def tasks_of(self, workload: str) -> list[Task]:
        return [task for task in self.tasks.values() if task.workload == workload]

    def pool_of(self, node: Node) -> str:
        """The pool a node is in: the first by name whose label it carries, else `default`."""
        named = sorted(pool.name for pool in self.pools.values() if pool.label_key)
        return next((name for name in named if node.label("pool") == name), DEFAULT_POOL)


def world(nodes: str, projects: str, *jobs: str, pools: str = "", bookings: str = "") -> Scene:
    """A scene from its text; see the module for the words."""
    scene = Scene()
    for word in f"{DEFAULT_POOL} {pools}".split():
        scene.put(pool(word))
    for word in nodes.split():
        scene.put(node(word))
    for word in sorted(projects.split(), key=lambda word: "/=" not in word):
        put_queue(scene, word)
    for line in jobs:
        put_job(scene, line)
    for line in bookings.split(";") if bookings else ():
        scene.put(booking(line))
    return scene


def booking(line: str) -> Booking:
    """`vip b 600-1200 n1*2 n2*1`, in seconds from the beginning; `fix - 0-60 n1` is maintenance."""
    name, project, times, *places = line.split()
    start, _, end = times.partition("-")
    counts = [place.partition("*") for place in places]
    return Booking(
        name,
        name,
        NOW + int(start) * 1000,
        NOW + int(end) * 1000,
        tuple(sorted((node, int(count or 0)) for node, _, count in counts)),
        project if project != "-" else "",
    )


def pool(word: str) -> NodePool:
    name, *options = word.split(":")
    said = dict(option.partition("=")[::2] for option in options)
    strategy = Strategy.SPREAD if "spread" in said else Strategy.PACK
    label = ("", "") if name == DEFAULT_POOL else ("pool", name)
    devices = Strategy.SPREAD if "devices" in said else Strategy.PACK
    least = int(said.get("min", 0)) * 1000
    return NodePool(name, name, *label, strategy, strategy, least, device_strategy=devices)


def node(word: str) -> Node:
    name, count, *options = word.split(":")
    said = dict(option.partition("=")[::2] for option in options)
    foreign = {int(index) for index in said.get("foreign", "").split(",") if index}
    memory = int(said.get("mem", 16)) * GIB
    labels = {"pool": said.get("pool"), "run.ai/type": said.get("type")}
    labels |= {key: said.get(key) for key in ("zone", "rack", "size")}
    size = max(1, int(count))
    return Node(
        name,
        tuple(Gpu(f"{name}.{i}", i, memory, foreign=i in foreign) for i in range(int(count))),
        cpu=parse_cpu(said["cpu"]) if "cpu" in said else 16_000 * size,
        memory=(int(said["ram"]) if "ram" in said else 64 * size) * GIB,
        labels=tuple(sorted((key, value) for key, value in labels.items() if value)),
        ready="down" not in said,
        draining="drain" in said,
        taints=tuple(taint(text, NOW) for text in said.get("taint", "").split(",") if text),
        max_tasks=int(said["tasks"]) if "tasks" in said else None,
    )


def _gpus(text: str) -> int:
    return UNLIMITED if text == "inf" else parse_gpus(text)


def put_queue(scene: Scene, word: str) -> None:
    """Adds a project or department (`d1/=6`); a department that only projects name has a derived quota."""
    head, *options = word.split(":")
    path, _, quotas = head.partition("=")
    said = dict(option.partition("=")[::2] for option in options)
    derived = quotas == "?"
    by_pool = {}
    for part in () if derived else f"{DEFAULT_POOL}={quotas}".split("+"):
        name, _, amount = part.partition("=")
        by_pool[name] = Quota(
            gpu=_gpus(amount),
            gpu_limit=_gpus(said.get("max", "inf")),
            weight=parse_gpus(said["w"]) if "w" in said else None,
            rank=int(said.get("rank", 100)),
            cpu=parse_cpu(said["cpu"]) if "cpu" in said else UNLIMITED,
            cpu_limit=parse_cpu(said["cpumax"]) if "cpumax" in said else UNLIMITED,
            memory=int(said["ram"]) * GIB if "ram" in said else UNLIMITED,
            memory_limit=int(said["rammax"]) * GIB if "rammax" in said else UNLIMITED,
        )
    department, slash, name = path.rpartition("/")
    department = department or "default"
    age = len(scene.departments) + len(scene.projects)
    if slash and not name:
        scene.put(Department(department, department, tuple(sorted(by_pool.items())), age, derived=derived))
        return
    if department not in scene.departments:
        scene.put(Department(department, department, (), age, derived=True))
    scene.put(
        Project(
            name,
            name,
            tuple(sorted(by_pool.items())),
            age,
            department=department,
            derived=derived,
            default_pools=tuple(said["pools"].split(",")) if "pools" in said else (),
            interactive_node_types=tuple(said["types"].split(",")) if "types" in said else (),
            training_node_types=tuple(said["types"].split(",")) if "types" in said else (),
        )
    )


def _request(words: list[str]) -> Request:
    request = Request()
    for word in words:
        if word[0] == "g" and word[1:2].isdigit():
            amount, _, devices = word[1:].partition("x")
            milli = parse_gpus(amount)
            if milli % GPU == 0 and not devices:
                request = replace(request, devices=milli // GPU)
            else:
                request = replace(request, devices=int(devices or 1), portion=milli)
        elif word[0] == "m" and word[1:2].isdigit():
            amount, _, devices = word[1:].partition("x")
            request = replace(request, devices=int(devices or 1), gpu_memory=parse_bytes(amount))
        elif word[0] == "c" and word[1:2].isdigit():
            request = replace(request, cpu=parse_cpu(word[1:]))
        elif word[0] == "r" and word[1:2].isdigit():
            request = replace(request, memory=int(word[1:]) * GIB)
        elif word.startswith("by="):
            request = replace(request, owner=word[3:])
        elif word.startswith("upto=0."):
            request = replace(request, portion_limit=parse_gpus(word[5:]))
        elif word.startswith("upto="):
            request = replace(request, gpu_memory_limit=parse_bytes(word[5:]))
    return request if request.shared else replace(request, owner="")


def _within(said: dict[str, str]) -> Within | None:
    near = {"required": said.get("within", ""), "preferred": said.get("near", "")}
    return Within(ROOM.name, **near) if any(near.values()) else None


def _group(name: str, words: list[str], own: bool = False) -> TaskGroup:
    said = said_in(words) if own else {}
    counts = next((word[1:] for word in words if word[0] == "x" and word[1:2].isdigit()), "1")
    sizes = [int(part) for part in counts.split("-")]
    return TaskGroup(
        name,
        _request(words),
        min=sizes[0],
        wanted=sizes[min(1, len(sizes) - 1)],
        max=sizes[-1],
        elastic="elastic" in words,
        live_resize="live" in words,
        priority=next((int(word[1:]) for word in words if word[0] == "q" and word[1:].isdigit()), None),
        affinity=affinity(said),
        tolerations=tolerations(said),
        apart=said.get("apart", ""),
        within=_within(said),
    )


def job(line: str, serial: int, now: int = NOW) -> tuple[Workload, list[Task]]:
    """A workload and its tasks, none of which is placed yet."""
    name, project, *words = line.split()
    parts: list[tuple[str, list[str]]] = [("main", [])]
    for word in words:
        if word[0] == "+":
            parts.append((word[1:], []))
        elif word[0] not in "@~>":
            parts[-1][1].append(word)
    said = said_in(parts[0][1])
    groups = tuple(_group(group, of_group, at > 0) for at, (group, of_group) in enumerate(parts))
    begun = now - int(said.get("waits", 0)) * 1000
    priority = next((int(word[1:]) for word in words if word[0] == "p" and word[1:].isdigit()), None)
    single = sum(group.max for group in groups) == 1
    training = Kind.TRAINING if single else Kind.DISTRIBUTED
    workload = Workload(
        name,
        name,
        project,
        Kind.WORKSPACE if "int" in words else training,
        Launch("image"),
        groups,
        priority=50 if priority is None else priority,
        preemptible="np" not in words and "semi" not in words,
        semi_preemptible="semi" in words,
        background="bg" in words,
        pools=tuple(said["pool"].split(",")) if "pool" in said else (),
        node_type=said.get("type", ""),
        grow_doubling="double" in words,
        created=begun,
        phase=Phase.PENDING if "waits" in said else Phase.CREATING,
        phase_since=begun,
        preemption_delay=int(said.get("delay", 0)) * 1000,
        max_runtime=int(said["lasts"]) * 1000 if "lasts" in said else None,
        affinity=affinity(said),
        tolerations=tolerations(said),
        apart=said.get("apart", ""),
        within=_within(said),
        serial=serial,
    )
    tasks = [Task(name, f"{group.name}-{i}", group.name, i) for group in groups for i in range(group.max)]
    return workload, tasks


def put_job(scene: Scene, line: str, now: int = NOW) -> Workload:
    """A workload with its tasks, placed where the line says so."""
    workload, tasks = job(line, 1 + max((w.serial for w in scene.workloads.values()), default=0), now)
    scene.put(workload)
    words = line.split()
    ran = next((int(word[4:]) * 1000 for word in words if word.startswith("ran=")), 3_600_000)
    seats = [(word[0], seat) for word in words[2:] if word[0] in "@~>" for seat in word[1:].split(",")]
    for task, seat in zip(tasks, seats + [("", "")] * (len(tasks) - len(seats)), strict=True):
        if not seat[1]:
            scene.put(task)
            continue
        place = placement(scene, workload.group(task.group).request, seat[1])
        match seat[0]:
            case "@":
                phase, claims, carries = TaskPhase.RUNNING, place, place
            case "~":
                phase, claims, carries = TaskPhase.STOPPING, None, place
            case _:
                phase, claims, carries = TaskPhase.WAITING, place, None
        begun = now - ran if carries else None
        attempt = 1 if carries else 0
        scene.put(
            replace(
                task,
                phase=phase,
                claims=claims,
                carries=carries,
                attempt=attempt,
                started=begun,
                first_started=begun,
            )
        )
    return workload


def cost(request: Request, gpu: Gpu) -> Share:
    """What one device of a request takes of this GPU."""
    if request.gpu_memory:
        portion = -(-request.gpu_memory * GPU // gpu.memory)
        return Share(gpu.uuid, portion, request.gpu_memory, request.owner)
    return Share(gpu.uuid, request.portion, gpu.memory * request.portion // GPU, request.owner)


def placement(scene: Scene, request: Request, seat: str) -> Placement:
    """`n1`, `n1*2` (that many devices) or `n1.1` (these indices); without indices the lowest with room."""
    where, _, count = seat.partition("*")
    name, *indices = where.split(".")
    machine = scene.nodes[name]
    wanted = int(count) if count else request.devices
    if indices:
        chosen = [machine.gpus[int(index)] for index in indices]
    else:
        chosen = [gpu for gpu in machine.gpus if _room(scene, gpu, request)][:wanted]
        if len(chosen) < wanted:
            raise ValueError(f"the text puts more on {name} than it has")
    return Placement(name, tuple(cost(request, gpu) for gpu in chosen), request.cpu, request.memory)


def _room(scene: Scene, gpu: Gpu, request: Request) -> bool:
    if gpu.foreign:
        return False
    share = cost(request, gpu)
    portion, memory = share.portion, share.memory
    for task in scene.tasks.values():
        for held in {*(task.claims or Placement("")).shares, *(task.carries or Placement("")).shares}:
            if held.gpu == gpu.uuid:
                portion, memory = portion + held.portion, memory + held.memory
    return portion <= GPU and memory <= gpu.memory
