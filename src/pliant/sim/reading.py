"""Detects the kind of a trace by its content, and reads it."""

from dataclasses import replace
from pathlib import Path

from pliant.model.quantity import GPU
from pliant.model.tenancy import Quota
from pliant.sim import kueue, openb, philly, plain, recorded
from pliant.sim.lines import Complaints, TraceError, read_lines
from pliant.sim.room import Room
from pliant.sim.trace import START, Job, Setup, Trace, department, owner

OPENB_TIMES = ("creation_time", "deletion_time")


def read(path: Path, nodes: Path | None = None, config: str = "") -> Trace:
    """The trace; it warns of each CSV file whose last line has no newline. Raises TraceError."""
    trace = _read(path, nodes, config)
    files = sorted(path.glob("*.csv")) if path.is_dir() else [it for it in (path, nodes) if it is not None]
    unended = [file for file in files if file.suffix == ".csv" and not file.read_bytes().endswith(b"\n")]
    text = "the last line does not end with a newline; its last value may be cut off"
    return replace(trace, warnings=[*trace.warnings, *(f"{file}: {text}" for file in unended)])


def _read(path: Path, nodes: Path | None, config: str) -> Trace:
    if not path.exists():
        raise TraceError(f"{path}: there is no such file or folder")
    if path.is_dir() and (path / plain.JOBS).exists():
        return plain.read(path)
    if path.is_dir() or path.suffix in (".jsonl", ".zip"):
        return recorded.read(path)
    for line in read_lines(path, ()):
        columns = line.values.keys()
        if columns >= set(kueue.COLUMNS):
            return kueue.read(path, config)
        if columns >= set(philly.COLUMNS):
            return philly.read(path, _needed(path, nodes, "Philly's", "vc and node num"))
        if columns >= {*openb.POD_COLUMNS, *OPENB_TIMES}:
            return _openb(path, _needed(path, nodes, "openb's", ", ".join(openb.NODE_COLUMNS)))
        break
    raise TraceError(
        f"{path}:1: these columns are of no trace that is known: pliant sim run --help names the kinds"
    )


def _needed(path: Path, nodes: Path | None, whose: str, columns: str) -> Path:
    if nodes is None:
        raise TraceError(f"{path}: {whose} nodes are in a file of their own: --nodes FILE, columns {columns}")
    return nodes


def _openb(path: Path, nodes_file: Path) -> Trace:
    """Read pods with their times into one project. Raises TraceError."""
    nodes = openb.read_nodes(nodes_file)
    room, wrong = Room(nodes), Complaints()
    found: list[tuple[int, int, openb.Pod, int]] = []
    for line in read_lines(path, (*openb.POD_COLUMNS, *OPENB_TIMES)):
        with wrong.about():
            begins, ends = line.whole("creation_time"), line.whole("deletion_time")
            if ends < begins:
                raise line.error(f"deletion_time is {ends}, before creation_time {begins}")
            found.append((begins, line.number, openb.pod_of(line, room), ends))
    wrong.tell()
    if not found:
        raise TraceError(f"{path}: there are no pods")
    found.sort(key=lambda it: it[:2])
    jobs = [
        Job(openb.workload_of(pod, number, "trace", START + begins * 1000), (ends - begins) * 1000)
        for begins, number, pod, ends in found
    ]
    total = sum(len(node.gpus) for node in nodes)
    setup: list[Setup] = [department(), owner("trace", Quota(total * GPU)), *nodes]
    return Trace(path.stem, jobs[0].workload.created, setup, jobs)
