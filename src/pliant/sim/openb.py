"""Reads nodes and pods in the CSV columns of the openb trace, plain or .gz: docs/reference/simulator.md."""

from dataclasses import dataclass
from pathlib import Path

from pliant.model.affinity import Affinity, Operator, Term
from pliant.model.machine import NODE_TYPE, Gpu, Node
from pliant.model.quantity import GPU
from pliant.model.workload import Kind, Launch, Request, TaskGroup, Workload
from pliant.sim.lines import Complaints, Line, TraceError, read_lines
from pliant.sim.room import Room

MIB = 2**20
CARD = 16 * 2**30
"""Bytes of every GPU. The trace has none; fractions are requested in thousandths, so it does not matter."""

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")


@dataclass(frozen=True, slots=True)
class Pod:
    """One line of the list of pods."""

    request: Request
    models: tuple[str, ...]  # GPU models that it may use, sorted; empty: any


def read_nodes(path: Path) -> list[Node]:
    """The nodes, with the GPU model as node type. Raises TraceError."""
    found: dict[str, tuple[int, Node]] = {}
    wrong = Complaints()
    for line in read_lines(path, NODE_COLUMNS):
        with wrong.about():
            _node(line, found)
    wrong.tell()
    if not any(node.gpus for _, node in found.values()):
        raise TraceError(f"{path}: no node has a GPU")
    return [node for _, node in found.values()]


def _node(line: Line, found: dict[str, tuple[int, Node]]) -> None:
    name, model = line.values["sn"].strip(), line.values["model"].strip()
    if not name:
        raise line.error("sn is missing")
    if name in found:
        raise line.error(f"node {name} is already on line {found[name][0]}")
    count = line.whole("gpu", 1024)
    if count and not model:
        raise line.error("model is missing")
    gpus = tuple(Gpu(f"{name}/{i}", i, CARD, model) for i in range(count))
    labels = ((NODE_TYPE, model),) if model else ()
    cpu, memory = line.whole("cpu_milli"), line.whole("memory_mib") * MIB
    found[name] = line.number, Node(name, gpus, cpu, memory, labels, engine="virtual", simulated=True)


def read_pods(path: Path, nodes: list[Node]) -> list[Pod]:
    """The pods in the order of the file, which is the order of their arrival. Raises TraceError."""
    room, wrong = Room(nodes), Complaints()
    found: list[Pod] = []
    before = -1
    for line in read_lines(path, POD_COLUMNS):
        with wrong.about():
            before = _after(line, before)
            found.append(pod_of(line, room))
    wrong.tell()
    if not found:
        raise TraceError(f"{path}: there are no pods")
    return found


def _after(line: Line, before: int) -> int:
    """The pod's `pos`; `before` without such a column. Raises TraceError if it does not grow."""
    if "pos" not in line.values:
        return before
    now = line.whole("pos")
    if now == before:
        raise line.error(f"pos {now} is there twice")
    if now < before:
        raise line.error(f"pos {now} follows {before}; pods must be in the order of their arrival")
    return now


def pod_of(line: Line, room: Room) -> Pod:
    count, portion = line.whole("num_gpu", 1024), line.whole("gpu_milli", GPU)
    if count and not portion:
        raise line.error(f"gpu_milli is 0 but num_gpu is {count}")
    if count > 1 and portion < GPU:
        raise line.error(f"gpu_milli is {portion} but num_gpu is {count}; only one GPU can be shared")
    cpu, memory = line.whole("cpu_milli"), line.whole("memory_mib") * MIB
    request = Request(count, portion if count else GPU, cpu=cpu, memory=memory)
    named = {name.strip() for name in line.values.get("gpu_spec", "").split("|")} - {""}
    room.check(line, request, sorted(named))
    return Pod(request, tuple(sorted(named)) if count else ())


def workload_of(pod: Pod, serial: int, project: str, now: int) -> Workload:
    """The workload that a user would submit for this pod."""
    name = f"pod-{serial}"
    affinity = None
    if len(pod.models) > 1:
        affinity = Affinity(((Term(NODE_TYPE, Operator.IN, pod.models),),))
    return Workload(
        name,
        name,
        project,
        Kind.TRAINING,
        Launch(""),
        (TaskGroup("main", pod.request),),
        node_type=pod.models[0] if len(pod.models) == 1 else "",
        affinity=affinity,
        created=now,
        serial=serial,
    )
