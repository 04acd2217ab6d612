"""The search for victims against an exact solver on small worlds."""

from collections import Counter

import pytest

from pliant.sched.cycle import decide
from pliant.sched.settings import Settings
from tests.sched.exact import Exact
from tests.sched.scenarios import Seeded, chance, pick
from tests.sched.worlds import NOW, put_job, world

FEW, MANY = 160, 2_200  # worlds drawn; about half of them need and allow evictions
SETTINGS = Settings(consolidation_victims=0)  # no moves: the solver has none
RUNNING = (
    "g1",
    "g1",
    "g2",
    "g0.5",
    "g0.5",
    "g0.25",
    "g1 x2",
    "g1 x1-2",
    "g1 x1-2-3",
    "g1 elastic",
    "g2 elastic",
    "g3",
)
WAITING = ("g1", "g2", "g2", "g3", "g0.5", "g1 x2", "g1 x3", "g2 x2", "g0.5 x2", "g4", "g0.5x2")


def full(seed):
    """A nearly full world and one more workload that waits."""
    dice = Seeded(seed)
    sizes = [pick(dice, (2, 3, 4, 4)) for _ in range(dice.number(1, 3))]
    names = "abc"[: dice.number(1, 3)]
    projects = " ".join(
        f"{name}={dice.number(0, 5)}" + (":rank=200" if chance(dice, 10) else "") for name in names
    )
    scene = world(" ".join(f"n{i}:{size}" for i, size in enumerate(sizes)), projects)
    lines = []
    for serial in range(16):
        line = _seated(dice, scene, f"j{serial} {pick(dice, names)} {pick(dice, RUNNING)}", len(sizes))
        if line:
            lines.append(line)
            put_job(scene, line, NOW)
    line = f"w {pick(dice, names)} {pick(dice, WAITING)} p{pick(dice, (50, 80))}" + (
        " np" if chance(dice, 10) else ""
    )
    put_job(scene, line, NOW)
    return scene, [*lines, line]


def _seated(dice, scene, line, nodes):
    """The line with places for all or some of its tasks; empty if there is no room."""
    words = line.split()
    shape = " ".join(words[2:])
    count = 2 if "x2" in shape and "0.5x2" not in shape else 1
    if "x1-" in shape:
        count = dice.number(2, 3 if "-3" in shape else 2)
    if chance(dice, 50):
        line += f" p{pick(dice, (25, 65))}"
    if chance(dice, 10) and "elastic" not in shape and "-" not in shape:
        line += " np"
    seats = []
    for _ in range(count):
        node = f"n{dice.number(0, nodes - 1)}"
        least = 2 if "g2" in shape else 1  # so that only w waits
        seats.append(f"{node}*{dice.number(least, 3)}" if "elastic" in shape else node)
    line += " @" + ",".join(seats)
    trial = world("", "")
    trial.__dict__.update({key: dict(value) for key, value in scene.__dict__.items()})
    try:
        put_job(trial, line, NOW)
    except ValueError:
        return ""
    return line


def compare(seed):
    """(outcome, the solver's answer, the core's answer, the world)

    The core's loss may be smaller than the solver's, which makes no moves.
    """
    scene, lines = full(seed)
    built = scene.world()
    plan = decide(built, NOW, SETTINGS)
    if any(d.action == "allocate" and d.workload == "w" for d in plan.decisions):
        return "fits", None, None, lines
    exact = Exact(scene, "w")
    best, found = exact.best(), exact.of_plan(plan)
    if best is None and found is None:
        return "none", None, None, lines
    lost = exact.of_plan(plan, kept=True)
    lighter = best is not None and lost is not None and lost[1].price[:2] < best[1].price[:2]
    if best is None or found is None or best[0] != found[0]:
        return ("lighter" if lighter else "other action"), best, found, lines
    less = exact.least(found[0], found[1].devices)
    assert less is not None, f"the solver refuses {found} in {lines}"
    if sum(less.devices.values()) < sum(found[1].devices.values()):
        return "reducible", less, found, lines
    if found[1].price[:2] != best[1].price[:2]:
        return ("lighter" if lighter else "loses more"), best, found, lines
    return ("same" if found[1].order == best[1].order else "other order"), best, found, lines


def _shares(seeds, capsys):
    found, differ = Counter(), []
    for seed in seeds:
        kind, best, mine, lines = compare(seed)
        found[kind] += 1
        if kind not in ("fits", "none", "same"):
            differ.append(f"{seed} {kind}: {lines}\n  solver {best}\n  found  {mine}")
    compared = found.total() - found["fits"] - found["none"]
    least = found["same"] + found["lighter"]
    with capsys.disabled():
        share = f"{100 * least / compared:.2f} %"
        print(
            f"\n{least} of {compared} victim sets as the exact solver's, {share}; {found['lighter']} lighter"
        )
        print("\n".join(differ))
    assert not found["reducible"], differ
    return least, compared


def test_victims_are_the_least(capsys):
    same, compared = _shares(range(FEW), capsys)
    assert compared >= 60 and same >= compared - 1


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_many_victims_are_the_least(capsys):
    same, compared = _shares(range(10_000, 10_000 + MANY), capsys)
    assert compared >= 1_000 and same * 100 >= compared * 99
