"""Random worlds and their events, as text: a failing example prints in the form of a table test.

`scenario(dice)` draws one; `play(scenario)` plays it, and the referee judges each plan. Dice are either
Hypothesis's (which shrinks) or a seeded generator's (for runs that are compared byte by byte).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from hypothesis import strategies as st

from pliant.model.workload import Desired, TaskPhase
from pliant.sched.settings import Settings
from tests.sched.ticker import Ticker
from tests.sched.worlds import world

T = TypeVar("T")


class Dice(Protocol):
    def number(self, low: int, high: int) -> int: ...


class Seeded:
    """Dice of a seeded generator."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)


class Drawn:
    """Dice that Hypothesis draws; it shrinks towards low numbers."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def number(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))


def pick(dice: Dice, choices: Sequence[T]) -> T:
    """One of the choices; the first are the simplest."""
    return choices[dice.number(0, len(choices) - 1)]


def chance(dice: Dice, percent: int) -> bool:
    return dice.number(0, 99) >= 100 - percent


@dataclass(frozen=True)
class Scenario:
    nodes: str
    projects: str
    pools: str
    steps: tuple[str, ...]
    stop: int  # ms an engine takes to stop a task
    settings: Settings

    def __repr__(self) -> str:
        steps = "".join(f"\n    {step!r}," for step in self.steps)
        head = f"{self.nodes!r}, {self.projects!r}, {self.pools!r}"
        return f"Scenario({head}, ({steps}\n), {self.stop}, {self.settings!r})"


def scenario(dice: Dice, kinds: bool = False) -> Scenario:
    """Draws a scenario; `kinds` adds semi-preemptible and background work."""
    fast = chance(dice, 25)
    typed = chance(dice, 20)
    default = "default" + (":min=60" if chance(dice, 12) else "") + (":spread" if chance(dice, 15) else "")
    pools = default + (f" fast{':min=120' if chance(dice, 30) else ''}" if fast else "")
    holes = pick(dice, (0, 2, 3, 2, 0, 4))  # GPUs of each node, where small jobs are to leave holes
    count = pick(dice, (2, 3) if holes else (2, 1, 3, 4))
    nodes = " ".join(_node(dice, i, fast, typed, holes) for i in range(1, 1 + count))
    projects = _projects(dice, fast)
    names = [word.split("=")[0].rpartition("/")[2] for word in projects.split() if "/=" not in word]
    steps = _holes(dice, names, count * holes, holes) if holes else []
    first = sum(1 for step in steps if step.startswith("submit"))
    count = dice.number(1 + first, 14)
    for serial in range(first, count):
        line = _job(dice, f"j{serial}", pick(dice, names), fast, typed)
        word = pick(dice, ("", "semi", "bg")) if kinds and not {"np", "int"} & {*line.split()} else ""
        steps.append(f"submit {line} {word}".rstrip())
        for _ in range(pick(dice, (0, 1, 0, 2))):
            steps.append(_step(dice, serial + 1, projects))
    for _ in range(dice.number(0, 8)):
        steps.append(_step(dice, count, projects))
    victims = pick(dice, (16, -1, 2, 16, -1, 2, 16, 0))
    return Scenario(nodes, projects, pools, tuple(steps), pick(dice, (1_000, 20_000)), Settings(victims))


def _holes(dice: Dice, names: Sequence[str], gpus: int, size: int) -> list[str]:
    """Small jobs fill the nodes, some end, and a larger one asks for the fragmented rest."""
    shape = pick(dice, ("g1", "g1 p25", "g0.5"))
    small = [f"submit j{i} {pick(dice, names)} {shape}" for i in range(min(gpus, 9))]
    ends = [f"finish {i}" for i in range(dice.number(0, 1), len(small), 2) if not chance(dice, 15)]
    most = size // 2 + 1
    large = pick(dice, (f"g{most}", f"g{most}", f"g{most} np", f"g{most} x2", "g1"))
    return [*small, "rest", *ends, f"submit j{len(small)} {pick(dice, names)} {large}", "rest"]


def _node(dice: Dice, index: int, fast: bool, typed: bool, size: int) -> str:
    word = f"n{index}:{size or pick(dice, (2, 4, 1, 3, 2, 0))}"
    if chance(dice, 10):
        word += f":mem={pick(dice, (24, 8, 80))}"
    if chance(dice, 10):
        word += f":cpu={pick(dice, (4, 2))}"
    if fast and chance(dice, 40):
        word += ":pool=fast"
    if typed and chance(dice, 50):
        word += ":type=a"
    if chance(dice, 4):
        word += ":foreign=0"
    return word


def _queue(dice: Dice, name: str, fast: bool, largest: int) -> str:
    half = chance(dice, 8)
    word = f"{name}={dice.number(0, largest)}" + (".5" if half else "")
    if fast:
        word += f"+fast={dice.number(0, 2)}"
    if chance(dice, 12):
        word += f":max={dice.number(largest, largest + 2) + 1}"
    if chance(dice, 20):
        word += f":w={dice.number(0, 3)}"
    if chance(dice, 8):
        word += ":rank=200"
    return word


def _projects(dice: Dice, fast: bool) -> str:
    names = "abcd"[: pick(dice, (2, 3, 1, 4))]
    departments = pick(dice, (0, 0, 1, 2, 3))
    words = [_queue(dice, f"d{i}/", fast, 6) for i in range(departments)]
    for index, name in enumerate(names):
        path = f"d{dice.number(0, departments - 1)}/{name}" if departments else name
        derived = index == 0 and chance(dice, 8)
        words.append(f"{path}=?" if derived else _queue(dice, path, fast, 4))
    return " ".join(words)


SHAPES = ("g1", "g2", "g1", "g0.5", "g1 x2", "g1 elastic", "m6G", "g0.3", "g1 x1-3", "g2 elastic", "g3",
          "g1 x3", "g0.4 x2", "g1 x1-2-4", "g4 elastic", "g0.5x2", "g1 x2-3", "c1 x1 +worker g1 x0-2", "m3Gi",
          "c2", "c1 x1 +worker g1 x2", "g0.2", "g1 elastic live", "g1 elastic double",
          "g2 x2", "m12Gi")  # fmt: skip


def _job(dice: Dice, name: str, project: str, fast: bool, typed: bool) -> str:
    words = [name, project, pick(dice, SHAPES)]
    rigid = "elastic" not in words[2] and "-" not in words[2] and "x0" not in words[2]
    if chance(dice, 40):
        words.append(pick(dice, ("p80", "p25", "p65", "p99")))
    if rigid and chance(dice, 15):
        words.append("np")
    if rigid and chance(dice, 10):
        words.append(pick(dice, ("c1", "c3", "r40")))
    if fast and chance(dice, 40):
        words.append(pick(dice, ("pool=fast", "pool=fast,default", "pool=default")))
    if typed and chance(dice, 25):
        words.append("type=a")
    if chance(dice, 8):
        words.append("int")
    return " ".join(words)


EVENTS = ("rest", "tick 500", "finish", "tick 5000", "delete", "fail", "tick 0", "suspend", "resume",
          "finish", "lose", "find", "tick 60000", "quota", "drain", "undrain")  # fmt: skip


def _step(dice: Dice, jobs: int, projects: str) -> str:
    """Something that happens: to a job (by number), to a node (by number), to a quota, or time passing."""
    kind = pick(dice, EVENTS)
    if kind.startswith(("rest", "tick")):
        return kind
    if kind in ("lose", "find", "drain", "undrain"):
        return f"{kind} {dice.number(1, 4)}"
    if kind == "quota":
        word = pick(dice, [word for word in projects.split() if "=?" not in word] or ["a=1"])
        path, _, rest = word.partition("=")
        return f"quota {path}={dice.number(0, 4)}{rest[rest.index('+') :] if '+' in rest else ''}"
    return f"{kind} {dice.number(0, jobs - 1)}"


def happen(t: Ticker, step: str) -> None:
    """Plays one step of a scenario; skips a step that makes no sense now."""
    kind, _, rest = step.partition(" ")
    if kind == "submit":
        t.submit(rest)
        t.cycle()
    elif kind == "rest":
        t.settle(cycles=200)
    elif kind == "tick":
        t.cycle()
        t.advance(int(rest))
        t.cycle()
    elif kind == "quota":
        t.quota(rest)
    elif kind in ("lose", "find", "drain", "undrain"):
        _to_node(t, kind, f"n{rest}")
    else:
        _to_job(t, kind, f"j{rest}")


def _to_node(t: Ticker, kind: str, name: str) -> None:
    node = t.scene.nodes.get(name)
    if node is None:
        return
    if kind == "lose" and node.ready:
        t.lose(name)
    elif kind == "find" and not node.ready:
        t.find(name)
    elif kind in ("drain", "undrain"):
        t.drain(name, kind == "drain")


def _to_job(t: Ticker, kind: str, name: str) -> None:
    workload = t.scene.workloads.get(name)
    if workload is None or workload.desired is Desired.DELETED:
        return
    runs = any(task.phase is TaskPhase.RUNNING for task in t.scene.tasks_of(name))
    if kind == "delete":
        t.delete(name)
    elif workload.phase.final:
        return
    elif kind == "finish" and runs:
        t.finish(name)
    elif kind == "fail" and runs:
        t.fail(name)
    elif kind == "suspend" and workload.desired is Desired.RUNNING:
        t.suspend(name)
    elif kind == "resume" and workload.desired is Desired.STOPPED:
        t.resume(name)


def begin(found: Scenario) -> Ticker:
    return Ticker(
        world(found.nodes, found.projects, pools=found.pools), stop=found.stop, settings=found.settings
    )


def play(found: Scenario) -> Ticker:
    """Plays all steps; does not settle at the end."""
    t = begin(found)
    for step in found.steps:
        happen(t, step)
    return t
