"""Nodes and pods as CSV in the columns of the openb trace, plain or .gz: docs/reference/simulator.md."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pliant.model.affinity import Affinity, Operator, Term
from pliant.model.machine import NODE_TYPE, Gpu, Node
from pliant.model.quantity import GPU
from pliant.model.workload import Kind, Launch, Request, TaskGroup, Workload

MIB = 2**20
CARD = 16 * 2**30
"""Bytes of every GPU: the trace does not tell; shares are asked for in thousandths, so it does not matter."""

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
POD_COLUMNS = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")


class TraceError(Exception):
    """A file that cannot be read as a trace; the text names the file, the line and what is wrong."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One line of the list of pods."""

    request: Request
    models: tuple[str, ...]  # that it may use, sorted; empty: any


class _Line:
    """One line of a file, whose values complain about themselves."""

    def __init__(self, path: Path, number: int, values: Mapping[str, str]) -> None:
        self.path, self.number, self.values = path, number, values

    def error(self, text: str) -> TraceError:
        return TraceError(f"{self.path}:{self.number}: {text}")

    def whole(self, column: str, most: int = 2**53) -> int:
        text = self.values[column].strip()
        digits = text.removesuffix(".0")
        if not text:
            raise self.error(f"{column} is missing")
        if not digits.removeprefix("-").isdecimal():
            raise self.error(f"{column} is {text!r}, not a whole number")
        number = int(digits)
        if number < 0:
            raise self.error(f"{column} is {number}; it must not be negative")
        if number > most:
            raise self.error(f"{column} is {number}; at most {most} is possible")
        return number


def _lines(path: Path, required: tuple[str, ...]) -> Iterator[_Line]:
    try:
        with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
            rows = csv.reader(file, strict=True)
            header = [name.strip() for name in next(rows, [])]
            if lacking := [name for name in required if name not in header]:
                raise TraceError(
                    f"{path}:1: no column {', '.join(lacking)}; the first line must name the columns"
                )
            for row in rows:
                if not row:
                    continue
                line = _Line(path, rows.line_num, dict(zip(header, row, strict=False)))
                if len(row) != len(header):
                    cut = "; the file may be cut off here" if len(row) < len(header) else ""
                    raise line.error(f"{len(row)} values for {len(header)} columns{cut}")
                yield line
    except (EOFError, zlib.error):
        raise TraceError(f"{path}: the compressed file is cut off or damaged") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise TraceError(f"{path}: cannot be read: {reason}") from None
    except csv.Error as error:
        raise TraceError(f"{path}:{rows.line_num}: {error}") from None


def read_nodes(path: Path) -> list[Node]:
    """Nodes with their model as node type."""
    found: dict[str, tuple[int, Node]] = {}
    for line in _lines(path, NODE_COLUMNS):
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
    if not any(node.gpus for _, node in found.values()):
        raise TraceError(f"{path}: no node has a GPU")
    return [node for _, node in found.values()]


def read_pods(path: Path, nodes: list[Node]) -> list[Pod]:
    """Pods in the order of the file, which is that of their arrival."""
    models = {gpu.model for node in nodes for gpu in node.gpus}
    sizes = {(len(node.gpus), node.cpu, node.memory) for node in nodes}
    fits: set[Request] = set()  # those of which it is known that some node has room for them
    found: list[Pod] = []
    before = -1
    for line in _lines(path, POD_COLUMNS):
        if "pos" in line.values:
            now = line.whole("pos")
            if now == before:
                raise line.error(f"pos {now} is there twice")
            if now < before:
                raise line.error(f"pos {now} follows {before}; pods must be in the order of their arrival")
            before = now
        count, portion = line.whole("num_gpu", 1024), line.whole("gpu_milli", GPU)
        if count and not portion:
            raise line.error(f"gpu_milli is 0 but num_gpu is {count}")
        if count > 1 and portion < GPU:
            raise line.error(f"gpu_milli is {portion} but num_gpu is {count}; only one GPU can be shared")
        request = Request(
            count,
            portion if count else GPU,
            cpu=line.whole("cpu_milli"),
            memory=line.whole("memory_mib") * MIB,
        )
        if request not in fits:
            if not any(_within(request, size) for size in sizes):
                raise line.error("the pod is larger than any node")
            fits.add(request)
        named = {name.strip() for name in line.values.get("gpu_spec", "").split("|")} - {""}
        if unknown := sorted(named - models):
            raise line.error(f"no node has a GPU of model {unknown[0]}")
        found.append(Pod(request, tuple(sorted(named)) if count else ()))
    if not found:
        raise TraceError(f"{path}: there are no pods")
    return found


def _within(request: Request, size: tuple[int, int, int]) -> bool:
    gpus, cpu, memory = size
    return request.devices <= gpus and request.cpu <= cpu and request.memory <= memory


def workload_of(pod: Pod, serial: int, project: str, now: int) -> Workload:
    """As somebody would submit it."""
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
