"""Equal jobs are placed in one step: each on the same node, and for the same reason, as alone."""

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from pliant.sched.actions import allocate
from pliant.sched.actions.context import Cycle
from pliant.sched.cycle import decide
from pliant.sched.placement.series import Series
from pliant.sched.settings import Settings
from pliant.sched.world.nodes import NodeState
from tests.sched.canon import written
from tests.sched.worlds import NOW, world

_REQUESTS = (
    "g1",
    "g1",
    "g1",
    "g2",
    "g1 c4",
    "g2 c1 r40",
    "g1 r90",
    "g0.5",
    "g0 c3",
    "g1 x2",
    "g1 x1-3",
    "g3 np",
)
_HAVE = ("g1", "g1 c4", "g1 c6 r30", "g1 r50 np")
_WORDS = (
    "",
    "",
    "",
    "p80",
    "np",
    "int",
    "semi",
    "lasts=600",
    "pool=fast,default",
    "type=a",
    "likes=zone:a",
    "bg",
)
_NODES = (":cpu=8", ":tasks=3", ":type=a", ":pool=fast", ":ram=200", ":foreign=0", "", "", "")


@st.composite
def crowds(draw):
    """Nodes, queues, pools and several jobs of each kind; some run, some have just been stopped."""
    nodes = [
        f"n{at}:{draw(st.integers(1, 4))}{draw(st.sampled_from(_NODES))}"
        for at in range(draw(st.integers(1, 7)))
    ]
    queues = [
        "a=2",
        draw(st.sampled_from(("b=4", "b=0:max=3", "b=3:cpu=8:cpumax=12", "d1/b=2"))),
        "d1/c=3",
        "d1/=5",
    ]
    jobs = []
    for kind in range(draw(st.integers(1, 6))):
        words = f"{draw(st.sampled_from(_REQUESTS))} {draw(st.sampled_from(_WORDS))}"
        for at in range(draw(st.integers(1, 6))):
            jobs.append(f"j{kind}{at} {draw(st.sampled_from('abc'))} {words}")
    jobs = draw(st.permutations(jobs))
    where = [
        f"{draw(st.sampled_from(('@', '~')))}{node.split(':')[0]}"
        for node in nodes[: draw(st.integers(0, 2))]
        if "foreign" not in node  # a node of one GPU would have no usable one
    ]
    first = [
        f"r{at} {draw(st.sampled_from('abc'))} {draw(st.sampled_from(_HAVE))} {seat}"
        for at, seat in enumerate(where)
    ]
    return (
        " ".join(nodes),
        " ".join(queues),
        [*first, *jobs],
        draw(st.sampled_from(("fast", "fast:spread", "default:spread fast"))),
    )


def _decided(crowd):
    nodes, queues, jobs, pools = crowd
    built = world(nodes, queues, *jobs, pools=pools).world()
    found = written(decide(built, NOW, Settings()))
    built.check()  # undo leaves the world unchanged
    assert found == written(decide(built, NOW, Settings())), "a second look at the same world"
    return found


def _next_alone(cycle, order, pool, seen, hopeless):
    """Replaces allocate._next(): takes each job by itself."""
    job = order.pop()
    if job is not None:
        cycle.looked.setdefault(job[0].workload.id)
        seen.setdefault(id(order.row), allocate.Row(cycle, order.row, job[0], pool))
    return job


placed = {"in one step": 0, "of those on a node with others": 0, "all": 0}


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(crowds())
def _each_as_if_it_were_alone(crowd):
    note(repr(crowd))
    took = []
    with pytest.MonkeyPatch.context() as patch:
        told = NodeState.took
        patch.setattr(
            NodeState, "took", lambda self, tasks, *rest: (took.append(tasks), told(self, tasks, *rest))
        )
        together = _decided(crowd)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocate, "_next", _next_alone)
        assert _decided(crowd) == together, "one by one it is another plan"
        patch.setattr(Cycle, "series_for", lambda *_: None)
        assert _decided(crowd) == together, "without what equal ones have in common it is another plan"
    placed["in one step"] += sum(count for count in took if count > 0)
    placed["of those on a node with others"] += sum(count for count in took if count > 1)
    placed["all"] += len(together[0])


def test_each_is_placed_as_if_it_were_alone():
    _each_as_if_it_were_alone()
    assert placed["in one step"] > placed["all"] // 4, placed
    assert placed["of those on a node with others"], placed


def test_a_node_is_told_once_of_all_that_come_to_it(monkeypatch):
    calls = []
    took = NodeState.took
    monkeypatch.setattr(
        NodeState, "took", lambda self, *amounts: (calls.append(amounts), took(self, *amounts))
    )
    jobs = [f"{queue}{at} {queue} g1" for at in range(8) for queue in "ab"]
    built = world("n1:8 n2:8", "a=8 b=8", *jobs).world()
    assert len(decide(built, NOW, Settings()).starts) == 16
    assert calls == [(8, 8, 0, 0)] * 2 + [(-8, -8, 0, 0)] * 2


def test_what_fails_in_the_middle_of_a_step_leaves_the_world_as_it_was(monkeypatch):
    """A node not yet told of the placed tasks would report too much room."""
    built = world("n1:8", "a=8", *(f"a{at} a g1" for at in range(8))).world()
    take, left = Series.take, [3]

    def tired(self, chunk, chain):
        left[0] -= 1
        if not left[0]:
            raise MemoryError
        return take(self, chunk, chain)

    with monkeypatch.context() as patch:
        patch.setattr(Series, "take", tired)
        with pytest.raises(MemoryError):
            decide(built, NOW, Settings())
    built.check()
    assert len(decide(built, NOW, Settings()).starts) == 8
