"""Writes down every decision of many seeded random worlds: `python -m tests.sched.canon OUT --worlds 1000`.

Two versions of the core decide alike if their files are equal byte for byte. A line is one plan: the world,
then who gets, loses or keeps which devices of which nodes, on whose behalf, in which order, and the code and
the numbers of every reason. Texts are left out: they are for people, and their wording may change.

`--digests FILE` writes one short checksum for each world instead, which `test_canon.py` compares.
"""

import argparse
import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pliant.model.machine import Placement
from pliant.model.reason import Reason
from pliant.sched.plan import Plan
from pliant.sched.settings import Settings
from tests.sched.scenarios import Scenario, Seeded, happen, scenario
from tests.sched.ticker import Ticker
from tests.sched.worlds import world

SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"victims": "youngest"},
    {},
    {"ageing": 10_000},
    {"reservation": 2_000},
    {"churn_budget": 2},
    {"past_use": 500},
    {"search_steps": 40},
)
"""Settings of the worlds, in turn, on top of what each world draws."""

DIGEST = 12
"""Hexadecimal digits that are kept of each checksum."""


def drawn(seed: int) -> Scenario:
    """A random world and its events."""
    found = scenario(Seeded(seed))
    return replace(found, settings=replace(found.settings, **SETTINGS[seed % len(SETTINGS)]))


def lines(seed: int) -> Iterator[str]:
    """All plans of one world, until it comes to rest."""
    found = drawn(seed)
    settings: Settings = found.settings
    scene = world(found.nodes, found.projects, pools=found.pools)
    t = Ticker(scene, stop=found.stop, settings=settings, judged=False)
    for step in found.steps:
        happen(t, step)
    for number, plan in enumerate(t.plans):
        yield json.dumps([seed, number, *written(plan)], separators=(",", ":"))


def written(plan: Plan) -> list[Any]:
    """A plan as JSON can hold it."""
    return [
        [
            [
                d.verb,
                d.action,
                d.workload,
                d.tasks,
                d.gpu_before,
                d.gpu_after,
                d.beneficiary,
                _reason(d.reason),
            ]
            for d in plan.decisions
        ],
        [
            [*task.key, task.phase, task.attempt, _place(task.claims), _place(task.carries)]
            for task in plan.tasks
        ],
        [[*start.attempt, _place(start.placement), start.decision] for start in plan.starts],
        [[*stop.attempt, _reason(stop.reason), stop.decision] for stop in plan.stops],
        [[*resize.attempt, _place(resize.placement), resize.decision] for resize in plan.resizes],
        [[verdict.workload, verdict.position, _reason(verdict.reason)] for verdict in plan.verdicts],
        plan.wake,
        [[row.project, *row.times] for row in plan.disruptions],
    ]


def _place(place: Placement | None) -> list[Any] | None:
    if place is None:
        return None
    return [place.node, place.cpu, place.memory, [[it.gpu, it.portion, it.memory] for it in place.shares]]


ADDED = {
    "back-off": {"short_runs"},
    "no-capacity": {"only"},
    "waiting-for-release": {"grace"},
    "min-runtime": {"level", "owner"},
}
"""Numbers by reason that were added after these decisions were written down; no decision depends on them."""


def _reason(reason: Reason) -> list[Any]:
    added = ADDED.get(reason.code, set())
    return [reason.code, [entry for entry in reason.numbers if entry[0] not in added]]


def digest(seed: int) -> str:
    """A checksum of all that is decided in one world."""
    return hashlib.sha256("\n".join(lines(seed)).encode()).hexdigest()[:DIGEST]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write down every decision of many seeded random worlds.")
    parser.add_argument("out", type=Path, help="file to write")
    parser.add_argument("--worlds", type=int, default=1000)
    parser.add_argument("--digests", action="store_true", help="write one checksum for each world")
    said = parser.parse_args()
    with said.out.open("w") as file:
        for seed in range(said.worlds):
            for line in [digest(seed)] if said.digests else lines(seed):
                print(line, file=file)


if __name__ == "__main__":
    main()
