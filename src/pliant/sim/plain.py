"""Reads the simulator's own trace format: a folder with jobs.csv, nodes.csv and projects.csv."""

from pathlib import Path

from pliant.control.submit.submission import CPU_ALONE, CPU_PER_GPU, MEMORY_ALONE, MEMORY_PER_GPU
from pliant.model.machine import Node
from pliant.model.quantity import GPU
from pliant.model.tenancy import UNLIMITED, Quota
from pliant.model.workload import Kind, Launch, Request, TaskGroup, Workload
from pliant.sim.lines import Complaints, Line, TraceError, read_lines
from pliant.sim.room import Room
from pliant.sim.trace import GIB, START, Job, Setup, Trace, department, machine, owner

JOBS, NODES, PROJECTS = "jobs.csv", "nodes.csv", "projects.csv"
JOB_COLUMNS = ("submit_s", "project", "gpus", "run_s")
DAY = 86_400
MOST_SECONDS = 3650 * DAY
PREEMPTIBILITY = ("preemptible", "semi-preemptible", "non-preemptible")


def read(folder: Path) -> Trace:
    """Read the folder. Raises one TraceError with the errors of all three files."""
    wrong = Complaints()
    setup: list[Setup] = []
    nodes: dict[str, int] = {}
    for line in read_lines(folder / NODES, ("name", "gpus")):
        with wrong.about():
            name = _once(line, nodes, "node")
            cpu = line.thousandths("cores") if "cores" in line else None
            memory = line.whole("memory_gib") * GIB if "memory_gib" in line else None
            model = line.values.get("type", "").strip()
            setup.append(machine(name, line.whole("gpus", 1024), cpu, memory, model))
    projects: dict[str, int] = {}
    departments: dict[str, None] = {}
    for number, line in enumerate(read_lines(folder / PROJECTS, ("name", "quota"))):
        with wrong.about():
            name = _once(line, projects, "project")
            above = line.word("department") if "department" in line else "default"
            departments[above] = None
            setup.append(owner(name, _quota(line), above, number))
    setup += [department(name) for name in departments]
    if not nodes and not wrong:
        raise TraceError(f"{folder / NODES}: there are no nodes")
    room = Room(row for row in setup if isinstance(row, Node))
    names: dict[str, int] = {}
    jobs: list[Job] = []
    before = 0
    for line in read_lines(folder / JOBS, JOB_COLUMNS):
        with wrong.about():
            submitted = line.thousandths("submit_s", MOST_SECONDS * 1000)
            if submitted < before:
                raise line.error(f"submit_s goes back from {before / 1000:g} to {submitted / 1000:g}")
            before = submitted
            jobs.append(_job(line, START + submitted, room, projects, names))
    wrong.tell()
    if not jobs:
        raise TraceError(f"{folder / JOBS}: there are no jobs")
    return Trace(folder.name, START, setup, jobs)


def _once(line: Line, known: dict[str, int], what: str) -> str:
    name = line.word("name")
    if name in known:
        raise line.error(f"{what} {name} is already on line {known[name]}")
    known[name] = line.number
    return name


def _quota(line: Line) -> Quota:
    limit = line.thousandths("limit") if "limit" in line else UNLIMITED
    quota = line.thousandths("quota")
    if UNLIMITED != limit < quota:
        raise line.error(f"limit is {line.word('limit')}, below the quota of {line.word('quota')}")
    weight = line.thousandths("weight") if "weight" in line else None
    rank = line.whole("rank", 10**6) if "rank" in line else 100
    return Quota(quota, limit, weight, rank)


def _job(line: Line, at: int, room: Room, projects: dict[str, int], names: dict[str, int]) -> Job:
    project = line.word("project")
    if project not in projects:
        raise line.error(f"project {project} is not in {PROJECTS}")
    name = _once(line, names, "job") if "name" in line else f"job-{line.number}"
    asked = line.thousandths("gpus", 1024 * GPU)
    if asked > GPU and asked % GPU:
        raise line.error(f"gpus is {line.word('gpus')}: whole GPUs or a fraction of one")
    devices, portion = (asked // GPU, GPU) if asked >= GPU else (1 if asked else 0, asked or GPU)
    cpu = line.thousandths("cores") if "cores" in line else CPU_PER_GPU * devices or CPU_ALONE
    memory = MEMORY_PER_GPU * devices or MEMORY_ALONE
    if "memory_gib" in line:
        memory = line.whole("memory_gib") * GIB
    request = Request(devices, portion, cpu=cpu, memory=memory)
    kind = line.values.get("type", "").strip()
    room.check(line, request, [kind] if kind else [])
    tasks = line.whole("tasks", 4096) if "tasks" in line else 1
    elastic, background = line.yes("elastic"), line.yes("background")
    if not tasks or (elastic and (tasks > 1 or portion < GPU or not devices)):
        raise line.error("elastic needs one task of whole GPUs" if tasks else "tasks is 0")
    said = line.values.get("preemptibility", "").strip() or "preemptible"
    if said not in PREEMPTIBILITY:
        raise line.error(f"preemptibility is {said!r}; it is {', '.join(PREEMPTIBILITY)}")
    if background and said != "preemptible":
        raise line.error("a background job is preemptible")
    workload = Workload(
        name, name, project, Kind.TRAINING if tasks == 1 else Kind.DISTRIBUTED, Launch(""),
        (TaskGroup("main", request, tasks, tasks if not elastic else 1, tasks, elastic=elastic),),
        priority=line.whole("priority", 10**6) if "priority" in line else 50,
        preemptible=said == "preemptible", semi_preemptible=said == "semi-preemptible",
        background=background, node_type=kind, created=at,
    )  # fmt: skip
    return Job(workload, line.thousandths("run_s", MOST_SECONDS * 1000))
