"""Random small clusters at rest with a waiting workload, as text of tests.sched.worlds."""

from __future__ import annotations

import random
from dataclasses import replace

from pliant.model.workload import Desired
from pliant.sched.cycle import decide
from pliant.sched.explain.foresee import come_to_rest
from pliant.sched.plan import Plan
from pliant.sched.settings import Settings
from pliant.sched.world.state import World
from tests.sched.worlds import NOW, Scene, put_job, world

SETTINGS = Settings()


def scene(dice: random.Random) -> Scene:
    """Nodes, queues and jobs, not yet at rest."""
    nodes = []
    for n in range(dice.randint(1, 4)):
        word = f"n{n}:{dice.choice((1, 2, 4, 4, 8, 8))}"
        word += dice.choice(("", "", "", ":type=a", ":type=b", ":cpu=8", ":mem=24"))
        word += dice.choice(("", "", "", "", "", ":drain", ":down")) if n else ""
        nodes.append(word + (dice.choice(("", ":pool=fast")) if n > 1 else ""))
    queues = []
    if dice.random() < 0.3:
        queues.append(f"d1/={dice.randint(1, 8)}")
    for p in "abc"[: dice.randint(2, 3)]:
        word = f"{'d1/' if queues and dice.random() < 0.6 else ''}{p}={dice.randint(0, 6)}"
        word += dice.choice(("", "", f":max={dice.randint(1, 6)}", ":w=2", ":rank=200"))
        queues.append(word)
    pools = dice.choice(("", "fast", "fast:min=120"))
    jobs = [
        job(dice, f"r{i}", p, bool(pools)) for i, p in enumerate(dice.choices("ab", k=dice.randint(1, 8)))
    ]
    return world(" ".join(nodes), " ".join(queues), *jobs, pools=pools)


def job(dice: random.Random, name: str, project: str, fast: bool) -> str:
    size = dice.choice(("g1", "g1", "g1", "g2", "g2", "g4", "g8", "g0.5", "g0.3", "m6G", "c4", "g1 c12"))
    shape = dice.choice(("", "", "", "", "x2", "x3", "x1-3", "x2-4"))
    if size in ("g2", "g4") and not shape:
        shape = dice.choice(("", "", "elastic"))
    extra = dice.choice(
        (
            "",
            "",
            "",
            "",
            "np",
            "p80",
            "p60",
            "",
            "type=a" if dice.random() < 0.4 else "",
            "pool=fast" if fast else "",
        )
    )
    return " ".join(f"{name} {project} {size} {shape} {extra}".split())


def waiting(seed: int) -> tuple[World, Plan, str]:
    """A cluster at rest, its last plan, and the id of one waiting workload."""
    dice = random.Random(seed)
    while True:
        found = scene(dice)
        built = found.world()
        come_to_rest(built, NOW - 600_000, SETTINGS, decide)
        for i in range(dice.randint(1, 4)):
            put_job(found, job(dice, f"w{i}", dice.choice("ab"), "fast" in built.pools))
            row = found.workloads[f"w{i}"]
            built.put(row)
            for task in found.tasks_of(row.id):
                built.put(task)
        come_to_rest(built, NOW, SETTINGS, decide)
        plan = decide(built, NOW, SETTINGS)
        waits = [verdict.workload for verdict in plan.verdicts]
        if waits and plan.empty:
            chosen = dice.choice(waits)
            if dice.random() < 0.03:
                built.put(replace(built.workloads[chosen], desired=Desired.STOPPED))
                plan = decide(built, NOW, SETTINGS)
            return built, plan, chosen
