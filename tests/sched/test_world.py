"""The world: rows in any order, sums that follow, and contradictions that are named and set aside."""

import gc
import random
from dataclasses import replace

import pytest

from pliant.model.machine import Gpu, Placement, Share
from pliant.model.quantity import GPU, Resources
from pliant.model.reason import SetAside
from pliant.model.tenancy import Quota
from pliant.model.workload import TaskPhase
from pliant.sched.cycle import decide, unswept
from pliant.sched.settings import Settings
from pliant.sched.world.faults import DeviceFaults, faults
from pliant.sched.world.membership import STRETCHED, WANTING
from pliant.sched.world.state import World
from tests.sched.ticker import Ticker, settled
from tests.sched.worlds import GIB, world

SCENE = (
    "n1:2 n2:4:mem=24 n3:2:pool=fast",
    "d1/=4+fast=2 d1/a=2+fast=1 d1/b=2 c=0",
    "a1 a g1 @n1 c2 r4",
    "a2 a g0.5 @n1.1 np",
    "b1 b g1 x2 @n2,n2",
    "b2 b g2 >n2",
    "c1 c m6Gi ~n2.3",
    "c2 c g2 elastic",
)


def _scene():
    return world(*SCENE, pools="fast:min=60")


@pytest.mark.parametrize("seed", range(8))
def test_rows_may_come_in_any_order(seed):
    scene = _scene()
    rows = list(scene.rows())
    random.Random(seed).shuffle(rows)
    found = World()
    for row in rows:
        found.put(row)
    found.check()
    assert found.snapshot() == scene.world().snapshot()


def test_putting_again_replaces():
    scene = _scene()
    found = scene.world()
    for row in scene.rows():
        found.put(row)
    found.check()
    assert found.snapshot() == scene.world().snapshot()


@pytest.mark.parametrize("seed", range(8))
def test_dropped_rows_leave_nothing_behind(seed):
    """A world after rows were put and dropped, in any order, equals one that never had them."""
    scene, extra = (
        _scene(),
        world("n8:2 n9:2:pool=slow", "e/=1 e/z=1", "z1 z g1 @n8", "z2 z g1 >n9", pools="slow"),
    )
    found, dice = scene.world(), random.Random(seed)
    rows = [row for row in extra.rows() if row not in list(scene.rows())]
    dice.shuffle(rows)
    for row in rows:
        found.put(row)
        found.check()
    dice.shuffle(rows)
    for row in rows:
        found.drop(row)
        found.check()
    assert found.snapshot() == scene.world().snapshot()


def test_sets_never_tell_of_what_was_taken_back():
    """A trial updates the sets; after its undo the victim is in them again."""
    found = world("n1:2", "a=2", "x a g1 elastic @n1*2").world()
    found.update_sets()
    mark = found.checkpoint()
    found.claim(("x", "main-0"), None)
    assert list(found.stretched) == ["x"] and not found.now_in(STRETCHED)
    assert not found.wanting and found.now_in(WANTING) == ["x"]
    found.update_sets()
    assert not found.holders["a"] and not found.stretched
    found.undo(mark)
    assert list(found.holders["a"]) == list(found.stretched) == ["x"]


def test_usage_up_the_tree():
    found = _scene().world()
    claimed, fixed = found.usage("a", "default")
    assert claimed == Resources(1500, 2000, 4 * GIB) and fixed == Resources(500)
    assert found.usage("d1", "default")[0] == Resources(5500, 2000, 4 * GIB)
    assert found.usage("c", "default")[0] == Resources(), "what is releasing no longer counts"
    assert found.usage("a", "fast")[0] == Resources()


def test_what_devices_tell():
    found = _scene().world()
    device = found.nodes["n2"].devices["n2.3"]
    portion = device.carried
    assert portion == 250 and device.claimed == GPU, "b2's second device is the one c1 still sits on"
    assert device.promised == portion, "so much of the claim lies on what another still carries"
    half = found.nodes["n1"].devices["n1.1"]
    assert (half.claimed, half.carried, half.releasing, half.promised) == (500, 500, 0, 0)


def test_a_releasing_device():
    t = Ticker(world("n1:1", "a=1", "x a g1 ~n1"), stop=60_000)
    device = t.world.nodes["n1"].devices["n1.0"]
    assert (device.claimed, device.carried, device.releasing, device.promised) == (0, GPU, GPU, 0)


def test_the_pool_of_a_node_follows_its_labels():
    scene = _scene()
    found = scene.world()
    assert [found.pool_of(name) for name in ("n1", "n3")] == ["default", "fast"]
    found.put(replace(scene.nodes["n1"], labels=(("pool", "fast"),)))
    found.check()
    assert found.pool_of("n1") == "fast"
    assert found.usage("a", "fast")[0].gpu == 1500 and found.usage("a", "default")[0].gpu == 0


@pytest.mark.parametrize(
    ("claims", "named"),
    [
        (Placement("n7", (Share("n7.0", GPU, 16 * GIB),)), "n7"),
        (Placement("n1", (Share("n1.9", GPU, 16 * GIB),)), "bad"),
        (Placement("n1", (Share("n1.0", GPU, 16 * GIB),)), "n1"),
    ],
    ids=["unknown node", "unknown device", "over-full device"],
)
def test_contradictions_are_named_and_kept_apart(claims, named):
    scene = world("n1:1 n2:2", "a=3", "good a g1 @n1", "bad a g1", "free a g1")
    key = ("bad", "main-0")
    scene.put(replace(scene.tasks[key], phase=TaskPhase.RUNNING, claims=claims, carries=claims, attempt=1))
    found = scene.world()
    assert any(named in fault for fault in list(faults(found))), list(faults(found))
    plan = decide(found, 100_000_000, Settings())
    assert "free" in {start.attempt.workload for start in plan.starts}, "the rest is scheduled"
    assert not {start.attempt.workload for start in plan.starts} & {"good"}


@pytest.mark.parametrize("seed", range(20))
def test_what_is_known_of_devices_follows_every_change(seed):
    """Checking only changed nodes finds the same, in the same order, as checking all."""
    dice, scene = random.Random(seed), world("n1:1 n2:2 n3:2", "a=9", *(f"w{at} a g1" for at in range(6)))
    found, followed, told = scene.world(), DeviceFaults(), set()
    devices = [Gpu(name, 0, 16 * GIB) for name in ("n1.0", "n2.0", "n2.1", "n3.0", "x")]
    for _ in range(60):
        if dice.random() < 0.4:
            node = scene.nodes[dice.choice(("n1", "n2", "n3"))]
            row = replace(node, gpus=tuple(dice.choices(devices, k=2)), cpu=dice.choice((1, 10**6)))
            (found.drop if dice.random() < 0.3 else found.put)(row)
        else:
            row = scene.tasks[f"w{dice.randrange(6)}", "main-0"]
            shares = (Share(dice.choice(devices).uuid, GPU, GIB),)
            claims = Placement(dice.choice(("n1", "n2", "n3")), shares, cpu=dice.choice((0, 100)))
            found.put(replace(row, claims=claims if dice.random() < 0.8 else None))
        now = followed.look(found)
        assert now == DeviceFaults().look(found)
        told |= {
            word for text in now for word in ("over-full", "of which only", "and on node") if word in text
        }
    assert len(told) == 3, told


def _asks(**amounts):
    return lambda x: replace(
        x, groups=(replace(x.groups[0], request=replace(x.groups[0].request, **amounts)),)
    )


@pytest.mark.parametrize(
    ("change", "flaw"),
    [
        (lambda x: replace(x, groups=()), SetAside("no-groups")),
        (lambda x: replace(x, groups=x.groups * 2), SetAside("same-names")),
        (
            lambda x: replace(x, groups=(replace(x.groups[0], min=5),)),
            SetAside("task-counts", "main", value=5, most=1),
        ),
        (
            lambda x: replace(x, groups=(replace(x.groups[0], min=-1),)),
            SetAside("negative-tasks", "main", value=-1),
        ),
        (_asks(devices=-1), SetAside("negative-request", "main", "devices", -1)),
        (_asks(cpu=-5000), SetAside("negative-request", "main", "cpu", -5000)),
        (_asks(memory=-1), SetAside("negative-request", "main", "memory", -1)),
        (_asks(gpu_memory=-4), SetAside("negative-request", "main", "gpu_memory", -4)),
        (_asks(portion=1500), SetAside("portion", "main", value=1500)),
        (_asks(portion=0), SetAside("portion", "main", value=0)),
    ],
)
def test_a_workload_that_contradicts_itself_is_set_aside(change, flaw):
    """The fault is named and the rest is scheduled; once corrected, it runs."""
    scene = world("n1:2", "a=2", "x a g1", "y a g1")
    plain = scene.workloads["x"]
    scene.workloads["x"] = change(plain)
    found = scene.world()
    assert list(faults(found)) == [f"workload x contradicts itself: {flaw.clause}"]
    plan = decide(found, 100_000_000, Settings())
    assert {start.attempt.workload for start in plan.starts} == {"y"}
    assert [verdict.reason for verdict in plan.verdicts if verdict.workload == "x"] == [flaw]
    found.put(plain)
    assert not list(faults(found))
    plan = decide(found, 100_000_000, Settings())
    assert {start.attempt.workload for start in plan.starts} == {"x", "y"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            lambda it: it.put(replace(it.projects["a"], department="gone")),
            "department gone, which is unknown",
        ),
        (
            lambda it: it.put(replace(it.nodes["n2"], gpus=it.nodes["n1"].gpus)),
            "GPU n1.0 is on node n1 and on node n2",
        ),
        (
            lambda it: it.put(replace(it.nodes["n2"], gpus=it.nodes["n2"].gpus * 2)),
            "node n2 names 2 GPUs, of which only 1 differ",
        ),
    ],
)
def test_other_rows_that_contradict_the_rest(change, named):
    scene = world("n1:1 n2:1", "a=2", "x a g1", "y a g1")
    change(scene)
    found = scene.world()
    assert any(named in fault for fault in list(faults(found))), list(faults(found))
    plan = decide(found, 100_000_000, Settings())
    assert {start.placement.node for start in plan.starts} == {"n1", "n2"}


def test_a_weight_below_nothing_counts_as_none():
    scene = world("n1:2", "a=0:w=1 b=0:w=1", "a1 a g1", "b1 b g1")
    for name, weight in (("a", -1000), ("b", 1000)):
        quota = Quota(weight=weight)
        scene.put(replace(scene.projects[name], quotas=(("default", quota),)))
    assert len(decide(scene.world(), 100_000_000, Settings()).starts) == 2


def test_a_pool_that_is_gone_is_named():
    scene = world("n1:1", "a=1:pools=gone", "x a g1")
    assert decide(scene.world(), 100_000_000, Settings()).verdicts[0].reason.pool == "gone"


def test_a_workload_of_an_unknown_project_is_named():
    scene = world("n1:2", "a=2", "x a g1", "y a g1")
    scene.workloads["x"] = replace(scene.workloads["x"], project="gone")
    found = scene.world()
    assert any("gone" in fault for fault in list(faults(found)))


@pytest.mark.parametrize("what", ["claimed", "carried"])
def test_check_finds_a_wrong_sum_and_names_it(what):
    found = _scene().world()
    device = found.nodes["n2"].devices["n2.1"]
    setattr(device, what, getattr(device, what) + 1)
    with pytest.raises(AssertionError, match=r"n2"):
        found.check()


def test_a_node_that_changes_its_gpus():
    """A free GPU is removed, then a claimed one, whose task waits, then a GPU is added, which it gets."""
    t = settled("n1:3", "a=4", "x a g1 @n1.0", "y a g1 @n1.1")
    x, y, free = t.scene.nodes["n1"].gpus

    def report(*gpus):
        """The node reports these GPUs. The world is compared with a new one before and after the cycles."""
        t.change(replace(t.scene.nodes["n1"], gpus=gpus))
        for brought_to_rest in (False, True):
            if brought_to_rest:
                t.settle()
            t.world.check()
            assert t.world.snapshot() == t.scene.world().snapshot()
            assert list(t.world.nodes["n1"].devices) == [gpu.uuid for gpu in gpus]
            assert t.world.capacity["default"].gpu == len(gpus) * GPU

    report(x, y)
    t.submit("z a g1")
    t.settle()
    assert t.rows() == ["x Running 1 n1", "y Running 1 n1", "z Pending 0"], "the free GPU is gone"
    report(x)
    assert t.rows() == ["x Running 1 n1", "y Pending 0", "z Pending 0"]
    assert t.scene.tasks["y", "main-0"].claims is None and not list(faults(t.world))
    report(x, replace(free, uuid="n1.3", index=3))
    assert t.rows() == ["x Running 1 n1", "y Running 1 n1", "z Pending 0"]
    assert [share.gpu for share in t.scene.tasks["y", "main-0"].claims.shares] == ["n1.3"]


def test_a_gpu_that_others_begin_to_use():
    """Work on the node keeps running; nothing new is placed on that GPU."""
    t = settled("n1:2", "a=3", "x a g1 @n1.0")
    node = t.scene.nodes["n1"]
    t.change(replace(node, gpus=(node.gpus[0], replace(node.gpus[1], foreign=True))))
    t.submit("y a g1")
    t.settle()
    assert t.rows() == ["x Running 1 n1", "y Pending 0"]


def test_who_asks_for_it_has_no_search_for_garbage_until_it_is_through_with_the_plan():
    scene = world("n1:2", "a=1", "x a g1", "y a g1")
    assert gc.isenabled()
    with unswept():
        assert len(decide(scene.world(), 100_000_000, Settings()).starts) == 2
        assert not gc.isenabled(), "the answer is not sent yet"
    decide(scene.world(), 100_000_000, Settings())
    assert gc.isenabled()


def test_the_lowest_priority_of_a_project_follows_its_workloads():
    found = world("n1:2", "a=2", "x a g1 p40 @n1", "y a g1 p60 @n1").world()

    def lowest():
        found.update_sets()
        return found.lowest_priority("a", found.workloads)

    assert lowest() == 40
    found.put(replace(found.workloads["x"], priority=70))
    assert lowest() == 60
    found.put(replace(found.workloads["y"], preemptible=False))
    assert lowest() == 70
    found.claim(("x", "main-0"), None)
    assert lowest() is None
    found.undo(0)
    assert lowest() == 70
    found.drop(found.workloads["x"])
    assert lowest() is None
