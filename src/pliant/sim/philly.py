"""Reads Microsoft's Philly trace in the columns of its public extracts: jobs of virtual clusters."""

from datetime import UTC, datetime
from pathlib import Path

from pliant.model.quantity import GPU
from pliant.model.tenancy import Quota
from pliant.model.workload import Kind, Launch, Request, TaskGroup, Workload
from pliant.sim.lines import Complaints, Line, TraceError, read_lines
from pliant.sim.trace import Job, Setup, Trace, department, machine, owner

COLUMNS = ("timestamp", "num_gpus", "gpu_time", "cluster")
NODE_COLUMNS = ("vc", "node num")
EACH = 8
"""GPUs per node: the list of nodes does not give them."""


def read(jobs_file: Path, nodes_file: Path) -> Trace:
    """Read each virtual cluster as a project with its own nodes as quota; without nodes the quota is 0.

    A job with more GPUs than a node is a gang of whole nodes. Jobs may be in any order. Raises TraceError.
    """
    wrong = Complaints()
    sizes: dict[str, tuple[int, int]] = {}
    setup: list[Setup] = [department()]
    for line in read_lines(nodes_file, NODE_COLUMNS):
        with wrong.about():
            name = line.word("vc")
            if name in sizes:
                raise line.error(f"vc {name} is already on line {sizes[name][0]}")
            sizes[name] = line.number, line.whole("node num", 10_000)
            setup += [machine(f"{name}-{index}", EACH) for index in range(sizes[name][1])]
    if len(setup) == 1 and not wrong:
        raise TraceError(f"{nodes_file}: there are no nodes")
    found: list[tuple[int, int, str, int, int]] = []
    for line in read_lines(jobs_file, COLUMNS):
        with wrong.about():
            found.append((_instant(line), line.number, line.word("cluster"), *_size(line)))
    wrong.tell()
    if not found:
        raise TraceError(f"{jobs_file}: there are no jobs")
    found.sort()
    names = sorted({name for _, _, name, _, _ in found} | set(sizes))
    for number, name in enumerate(names):
        quota = Quota(sizes[name][1] * EACH * GPU if name in sizes else 0)
        setup.append(owner(name, quota, created=number))
    jobs = [Job(_workload(at, number, name, gpus), run) for at, number, name, gpus, run in found]
    return Trace(jobs_file.stem, found[0][0], setup, jobs)


def _instant(line: Line) -> int:
    text = line.word("timestamp")
    try:
        return int(datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()) * 1000
    except ValueError:
        raise line.error(f"timestamp is {text!r}, not a time such as 2017-10-09 07:01:55") from None


def _size(line: Line) -> tuple[int, int]:
    """(GPUs, run time in ms)."""
    gpus, spent = line.whole("num_gpus", 10_000), line.thousandths("gpu_time")
    if not gpus:
        raise line.error("num_gpus is 0")
    if gpus > EACH and gpus % EACH:
        raise line.error(f"num_gpus is {gpus}: more than a node has and no multiple of {EACH}")
    return gpus, spent // gpus


def _workload(at: int, number: int, project: str, gpus: int) -> Workload:
    tasks, each = max(1, gpus // EACH), min(gpus, EACH)
    group = TaskGroup("main", Request(each), tasks, tasks, tasks)
    kind = Kind.TRAINING if tasks == 1 else Kind.DISTRIBUTED
    name = f"job-{number}"
    return Workload(name, name, project, kind, Launch(""), (group,), created=at)
