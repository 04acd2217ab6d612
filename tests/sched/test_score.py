"""Compares the indexed order of nodes with the same rules applied to every node."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from pliant.model.machine import Gpu, Node, NodePool, Strategy
from pliant.model.quantity import GPU
from pliant.model.tenancy import UNLIMITED, Department, Project, Quota
from pliant.model.workload import Desired, Kind, Launch, Request, Task, TaskGroup, TaskPhase, Workload
from pliant.sched.cycle import decide
from pliant.sched.placement import score
from pliant.sched.placement.fit import find, fits, seat
from pliant.sched.settings import Settings
from pliant.sched.world.asked import Asked
from pliant.sched.world.nodes import NODE_TYPE
from pliant.sched.world.state import World

CARD = 16 * 2**30
NOW = 1_000_000

NODES = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from([0, 4, 8, 16, 40]), st.sampled_from([8, 32]), st.sampled_from("AB")
    ),
    min_size=1,
    max_size=5,
)
REQUESTS = st.tuples(
    st.sampled_from([(0, GPU), (1, GPU), (2, GPU), (1, 250), (1, 470), (1, 810), (1, 190)]),
    st.sampled_from([0, 500, 1000, 4000, 9000]),
    st.sampled_from([0, 1, 4, 16]),
)


def _node(at, shape):
    gpus, cores, memory, kind = shape
    devices = tuple(Gpu(f"n{at}.{i}", i, CARD) for i in range(gpus))
    return Node(f"n{at}", devices, cores * 1000, memory * 2**30, ((NODE_TYPE, kind),))


def _request(drawn):
    (devices, portion), cpu, memory = drawn
    return Request(devices, portion, cpu=cpu, memory=memory * 2**30)


def _job(serial, request, node_type=""):
    name = f"w{serial}"
    groups = (TaskGroup("main", request),)
    return Workload(name, name, "a", Kind.TRAINING, Launch(""), groups, serial=serial, node_type=node_type)


def _world(nodes):
    world = World()
    world.put(Department("default", "default", derived=True))
    world.put(Project("a", "a", (("default", Quota(gpu=UNLIMITED)),), 0, department="default"))
    for at, shape in enumerate(nodes):
        world.put(_node(at, shape))
    return world


def _arrive(world, workload):
    """True if it was placed at once; otherwise removes it."""
    task = Task(workload.id, "main-0", "main", 0)
    world.put(workload)
    world.put(task)
    plan = decide(world, NOW, Settings(consolidation_victims=0))
    for row in plan.tasks:
        world.put(replace(row, phase=TaskPhase.RUNNING, started=NOW))
    if not plan.starts:
        world.drop(task)
        world.drop(workload)
    return bool(plan.starts)


def _allocated(world):
    return sum(task.claims.gpu for task in world.tasks.values() if task.claims is not None)


# ---------------------------------------------------------------- the index
def _stranded(node, gpu, need, rates):
    """Milli-GPUs times the rate for which a node lacks cores (or memory) after giving `gpu` and `need`."""
    rate = rates[node.look.by_memory]
    free = node.free_memory if node.look.by_memory else node.free_cpu
    return max(0, (node.room - gpu) * rate - (free - need) * GPU) if rate else 0


def _plain_key(world, node, request, pool, spared):
    need = request.memory if node.look.by_memory else request.cpu
    rate = world.rates[node.look.by_memory]
    growth = _stranded(node, request.gpu, need, world.rates) - _stranded(node, 0, 0, world.rates)
    steps = growth // (score.STEP * rate) if rate else 0
    capacity = node.row.memory if node.look.by_memory else node.row.cpu
    free = node.free_memory if node.look.by_memory else node.free_cpu
    part = -(free << 32) // max(1, capacity)
    kind = node.row.label(NODE_TYPE) in spared
    whole = request.portion == GPU
    rests = [GPU - it.claimed for it in node.devices.values() if 0 < it.claimed < GPU]
    if not request.devices:
        if pool.cpu_strategy is Strategy.SPREAD:
            return max(0, steps), kind, node.usable > 0, part, node.row.name
        return steps, kind, node.usable > 0, free, node.row.name
    if pool.gpu_strategy is Strategy.SPREAD:
        joins = not (whole or rests)
        return max(0, steps), kind, joins, -(node.free << 32) // max(1, node.usable), part, node.row.name
    left = 0 if whole else min([rest for rest in rests if rest >= request.portion], default=GPU)
    return steps, kind, left, node.free, node.usable, free, node.row.name


@given(
    NODES,
    st.lists(REQUESTS, max_size=8),
    REQUESTS,
    st.sampled_from(list(Strategy)),
    st.sampled_from(["", "A"]),
)
def test_the_index_finds_the_node_that_a_look_at_all_of_them_finds(nodes, held, asked, strategy, spared):
    world, request = _world(nodes), _request(asked)
    for serial, drawn in enumerate(held):
        _arrive(world, _job(serial, _request(drawn)))
    world.put(_job(99, request))
    world.update_sets()
    pool = NodePool("default", "default", gpu_strategy=strategy, cpu_strategy=strategy)
    cls = world.node_class("default", ())
    found = find(cls, request, pool, taste=score.Taste(world.rates, spared))
    fitting = [node for node in cls.nodes.values() if fits(node, request)]
    best = min(fitting, key=lambda node: _plain_key(world, node, request, pool, spared), default=None)
    assert found is best
    world.check()


@given(
    NODES,
    st.lists(REQUESTS, max_size=8),
    REQUESTS,
    st.integers(2, 7),
    st.sampled_from(list(Strategy)),
)
@example(  # after the first job the node would strand a GPU: another node is better
    [(2, 0, 32, "A"), (3, 18, 32, "A"), (3, 40, 32, "A")],
    [((1, GPU), 0, 0), ((1, GPU), 0, 0)],
    ((1, GPU), 8000, 0),
    2,
    Strategy.PACK,
)
def test_of_equal_jobs_each_goes_where_it_would_go_alone(nodes, held, asked, count, strategy):
    """A series places them; it queries the index again only if another node may have become better."""
    pool, jobs = (
        NodePool("default", "default", gpu_strategy=strategy, cpu_strategy=strategy),
        range(50, 50 + count),
    )
    worlds = []
    for _ in range(2):
        world = _world(nodes)
        world.put(pool)
        for serial, drawn in enumerate(held):
            _arrive(world, _job(serial, _request(drawn)))
        for serial in jobs:
            world.put(_job(serial, _request(asked)))
            world.put(Task(f"w{serial}", "main-0", "main", 0))
        worlds.append(world)
    together, alone = worlds
    plan = decide(together, NOW, Settings(consolidation_victims=0))
    placed = {start.attempt.workload: start.placement for start in plan.starts}
    together.check()
    alone.update_sets()
    request, cls = _request(asked), alone.node_class("default", ())
    for serial in jobs:
        taste = score.Taste(alone.rates, worth=alone.worth if request.shared else ())
        node = find(cls, request, pool, taste=taste)
        place = seat(node, request, pool) if node is not None else None
        assert placed.get(f"w{serial}") == place
        if place is not None:
            alone.claim((f"w{serial}", "main-0"), place)


# ---------------------------------------------------------------- the rules, one by one
@pytest.mark.parametrize(
    ("nodes", "held", "asked", "node"),
    [
        # Work without GPUs goes where more cores are left than the GPUs there need.
        ([(2, 16, 32, "A"), (2, 40, 32, "A")], [((1, GPU), 4000, 0)], ((0, GPU), 9000, 0), "n1"),
        # A fraction joins the fullest device on which it fits, on whatever node that is.
        ([(1, 16, 32, "A"), (2, 16, 32, "A")], [((1, 250), 0, 0), ((1, 810), 0, 0)], ((1, 190), 0, 0), "n1"),
        # Where no work asks for cores, the node with fewer free GPUs comes first.
        ([(3, 16, 32, "A"), (2, 16, 32, "A")], [], ((1, GPU), 0, 0), "n1"),
    ],
)
def test_the_best_node(nodes, held, asked, node):
    world = _world(nodes)
    for serial, drawn in enumerate(held):
        assert _arrive(world, _job(serial, _request(drawn)))
    assert _arrive(world, _job(99, _request(asked)))
    assert world.tasks["w99", "main-0"].claims.node == node


def test_what_a_node_lacks_now_counts_and_not_what_it_lacked_when_it_was_empty():
    """n0 lacks memory for its GPUs and so has cores to spare; when empty it had fewer spare cores."""
    world = _world([(4, 16, 40, "A"), (4, 16, 40, "A")])
    for serial, drawn in enumerate([((1, GPU), 4000, 8), ((0, GPU), 0, 24), ((0, GPU), 4000, 0)]):
        assert _arrive(world, _job(serial, _request(drawn)))
        assert world.tasks[f"w{serial}", "main-0"].claims.node == "n0"
    world.check()


def test_a_node_type_is_left_to_those_who_can_use_no_other():
    world = _world([(1, 16, 32, "A"), (2, 16, 32, "B")])
    world.put(replace(_job(50, Request(1), "A"), desired=Desired.RUNNING))  # waits: it has no task yet
    assert _arrive(world, _job(0, Request(1)))
    assert world.tasks["w0", "main-0"].claims.node == "n1"
    world.check()


def test_sums_are_those_of_the_rows_that_shall_run():
    asked, one, two = Asked(), _job(1, Request(1, cpu=7000), "A"), _job(2, Request(2, cpu=3000))
    asked.note(None, one)
    asked.note(None, two)
    assert asked.sums() == (3000, 10_000, 0, [(("A",), 1000)], [])
    assert asked.rates == (3072, 0)  # 3333 with three leading bits
    asked.note(one, replace(one, desired=Desired.STOPPED))
    asked.note(two, None)
    assert asked.sums() == (0, 0, 0, [], [])


# ---------------------------------------------------------------- against an exact packer
def _most(nodes, requests):
    """Milli-GPUs of the largest subset of requests that fits."""
    model, given = cp_model.CpModel(), []
    used = {(n, d): [] for n, (gpus, _, _, _) in enumerate(nodes) for d in range(gpus)}
    for n in range(len(nodes)):
        used |= {(n, "cpu"): [], (n, "memory"): []}
    for request in requests:
        here = [model.new_bool_var("") for _ in nodes]
        model.add_at_most_one(here)
        given.append(request.gpu * sum(here))
        for n, at in enumerate(here):
            parts = [model.new_bool_var("") for _ in range(nodes[n][0])]
            model.add(sum(parts) == request.devices * at)
            for d, part in enumerate(parts):
                used[n, d].append(request.portion * part)
            used[n, "cpu"].append(request.cpu * at)
            used[n, "memory"].append(request.memory * at)
    for (n, what), terms in used.items():
        _, cores, memory, _ = nodes[n]
        model.add(sum(terms) <= {"cpu": cores * 1000, "memory": memory * 2**30}.get(what, GPU))
    model.maximize(sum(given))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    return round(solver.objective_value)


ASKED = REQUESTS.filter(lambda drawn: drawn[0][0])
ADDED = (NODES, st.lists(ASKED, max_size=8), NODES.map(lambda nodes: nodes[0]))
ENDED = (NODES, st.lists(ASKED, min_size=1, max_size=8), st.integers(0, 7))


def _with_a_node_more(nodes, drawn, more):
    """The allocation is at most an exact packer's, leaves no GPU that a refused task could use, and one more
    node, at the end or from the start, lowers it by no more than the node's size."""
    requests = [_request(each) for each in drawn]
    world, larger = _world(nodes), _world([*nodes, more])
    refused = [r for serial, r in enumerate(requests) if not _arrive(world, _job(serial, r))]
    before, most = _allocated(world), _most([*nodes, more], requests)
    assert before <= _most(nodes, requests)
    for request in refused:  # a refused task still has no place
        assert not any(fits(node, request) for node in world.nodes.values())
    world.put(_node(len(nodes), more))  # refused tasks are tried again
    for serial, request in enumerate(refused, 50):
        _arrive(world, _job(serial, request))
    assert before <= _allocated(world) <= most
    for serial, request in enumerate(requests):
        _arrive(larger, _job(serial, request))
    assert before - more[0] * GPU <= _allocated(larger) <= most


def _with_a_task_less(nodes, drawn, which):
    """After a task ends and refused ones are tried again, the allocation falls by at most the task's size."""
    requests = [_request(each) for each in drawn]
    world = _world(nodes)
    placed = {serial: _arrive(world, _job(serial, request)) for serial, request in enumerate(requests)}
    ran = [serial for serial, ok in placed.items() if ok]
    if not ran:
        return
    before, gone = _allocated(world), ran[which % len(ran)]
    world.drop(world.tasks[f"w{gone}", "main-0"])
    world.drop(world.workloads[f"w{gone}"])
    for serial, ok in placed.items():
        if not ok:
            _arrive(world, _job(serial, requests[serial]))
    rest = [request for serial, request in enumerate(requests) if serial != gone]
    assert before - requests[gone].gpu <= _allocated(world) <= _most(nodes, rest)
    world.check()


@given(*ADDED)
def test_a_node_more_lowers_the_allocation_by_no_more_than_its_own_size(nodes, drawn, more):
    _with_a_node_more(nodes, drawn, more)


@given(*ENDED)
def test_a_task_that_ends_lowers_the_allocation_by_no_more_than_its_own_size(nodes, drawn, which):
    _with_a_task_less(nodes, drawn, which)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(("worlds", "holds"), [(ADDED, _with_a_node_more), (ENDED, _with_a_task_less)])
def test_both_in_a_thousand_worlds(worlds, holds):
    settings(max_examples=1_000)(given(*worlds)(holds))()
