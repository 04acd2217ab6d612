"""Random worlds with many placement wishes: every task is on a node that it may use."""

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from pliant.model.affinity import Affinity
from pliant.sched.settings import Settings
from pliant.sched.world.node_affinity import Where, alike, blocking, place_of
from tests.sched.ticker import Ticker
from tests.sched.worlds import ROOM, world

NODES = st.tuples(
    st.sampled_from(["1", "2", "4"]),
    st.sampled_from(["zone=a:rack=r", "zone=a:rack=s", "zone=b:rack=t", "zone=b:rack=u", "zone=b"]),
    st.sampled_from(["", "", ":taint=k.v/NoSchedule", ":taint=k.v/PreferNoSchedule", ":tasks=1", ":size=8"]),
)
WISHES = st.sampled_from(
    [
        "", "", "on=zone:a", "on=!zone:a", "on=size>4", "on=rack", "likes=5*zone:b", "stands=k", "apart=rack",
        "apart=kubernetes.io/hostname", "within=zone", "within=rack", "near=rack", "on=zone:a apart=rack",
        "delay=30", "lasts=60", "p80", "np",
    ]
)  # fmt: skip
SHAPES = st.sampled_from(
    ["g1", "g2", "g0.5", "c1", "g1 x2", "g1 x1-3", "g2 x2", "g1 elastic", "g1 +worker g1 x2"]
)
SETTINGS = st.builds(
    Settings,
    consolidation_victims=st.sampled_from([16, 0]),
    ageing=st.sampled_from([0, 10_000]),
    reservation=st.sampled_from([0, 2000]),
    churn_budget=st.sampled_from([-1, 1, 0]),
)


@st.composite
def _steps(draw):
    nodes = " ".join(
        f"n{i}:{':'.join(draw(NODES)[:2])}{draw(NODES)[2]}" for i in range(1, 1 + draw(st.integers(2, 5)))
    )
    jobs = [
        f"j{i} {draw(st.sampled_from('ab'))} {draw(SHAPES)} {draw(WISHES)}"
        for i in range(draw(st.integers(2, 8)))
    ]
    ends = draw(st.lists(st.integers(0, len(jobs) - 1), max_size=3, unique=True))
    return nodes, jobs, ends, draw(SETTINGS)


def lies_apart(name, key, places):
    values = [place_of(key, node) for node in places] if key else []
    assert all(values) and len(set(values)) == len(values), f"{name} lies together: {values}"


def lies_near(name, within, places):
    if within and within.required:
        levels = ROOM.levels[: ROOM.levels.index(within.required) + 1]
        found = {tuple(node.label(level) for level in levels) for node in places}
        assert len(found) <= 1, f"{name} lies in {found}"


def lies_well(t):
    for workload in t.scene.workloads.values():
        held = [task for task in t.scene.tasks_of(workload.id) if task.claims is not None]
        for group in workload.groups:
            asked = group.affinity or workload.affinity or Affinity()
            where = Where(asked.required, tolerations=(*workload.tolerations, *group.tolerations))
            mine = [t.scene.nodes[task.claims.node] for task in held if task.group == group.name]
            for node in mine:
                assert alike(where, node), f"{workload.name} is on {node.name}, whose labels it does not want"
                assert blocking(where.tolerations, node) is None, f"{workload.name} is on {node.name}: taints"
            lies_apart(workload.name, group.apart, mine)
            lies_near(workload.name, group.within, mine)
        places = [t.scene.nodes[task.claims.node] for task in held]
        lies_apart(workload.name, workload.apart, places)
        lies_near(workload.name, workload.within, places)
    for node in t.scene.nodes.values():
        count = sum(1 for task in t.scene.tasks.values() if task.claims and task.claims.node == node.name)
        assert node.max_tasks is None or count <= node.max_tasks, f"{node.name} holds {count} tasks"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_steps())
def test_every_task_lies_where_it_may(found):
    nodes, jobs, ends, chosen = found
    note(repr(found))
    t = Ticker(world(nodes, "a=1 b=3"), settings=chosen, judged=False)  # the referee does not know wishes
    for job in jobs:
        t.submit(job)
        t.cycle()
        lies_well(t)
        t.advance(500)
    t.settle(wait=60_000)
    for index in ends:
        t.finish(f"j{index}")
        t.settle()
        lies_well(t)
    plan = t.settle(wait=7_200_000, cycles=200)
    assert plan.empty, "a constant world rests"
    waiting = {verdict.workload for verdict in plan.verdicts}
    for name, (status, _, _) in t.show().items():
        assert status != "Pending" or name in waiting, f"{name} waits, and nobody says why"
