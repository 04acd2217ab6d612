"""Node classes follow every change of their nodes, in any order of changes and through undo."""

from hypothesis import given, note, settings
from hypothesis import strategies as st

from pliant.model.affinity import Effect, Taint
from pliant.model.machine import NODE_TYPE, Gpu, Node, NodePool, Placement, Share
from pliant.model.quantity import GPU
from pliant.model.tenancy import Project
from pliant.model.workload import Kind, Launch, Request, Task, TaskGroup, TaskPhase, Workload
from pliant.sched.world.node_classes import PLAIN, Domain, NodeClass, spec_of
from pliant.sched.world.state import World
from tests.sched.scenarios import Dice, Drawn, chance, pick
from tests.sched.worlds import GIB

TASKS = [("w", f"t{i}") for i in range(6)]
SPECS = (PLAIN, PLAIN._replace(labels=(("rack", "r1"),)), PLAIN._replace(device_memory=16 * GIB))


def _node(dice: Dice) -> Node:
    name = f"n{dice.number(1, 4)}"
    foreign = dice.number(0, 9)
    gpus = tuple(
        Gpu(f"{name}.{i}", i, pick(dice, (16, 8)) * GIB, foreign=i == foreign)
        for i in range(dice.number(0, 4))
    )
    labels = []
    for key, values in (("pool", ("", "fast")), ("rack", ("", "r1")), (NODE_TYPE, ("", "a"))):
        if value := pick(dice, values):
            labels.append((key, value))
    effects = (Effect.NO_SCHEDULE, Effect.PREFER_NO_SCHEDULE)
    taints = (Taint("k", "", pick(dice, effects)),) if chance(dice, 30) else ()
    ready, draining = not chance(dice, 15), chance(dice, 15)
    return Node(name, gpus, 8_000, 64 * GIB, tuple(sorted(labels)), ready, draining, taints=taints)


def _place(dice: Dice) -> Placement | None:
    """A random placement or None; its node or devices may be missing or in use."""
    if chance(dice, 25):
        return None
    name = f"n{dice.number(1, 5)}"
    devices = sorted({dice.number(0, 4) for _ in range(dice.number(1, 3))})
    portion = pick(dice, (GPU, GPU // 2))
    return Placement(name, tuple(Share(f"{name}.{i}", portion, portion * 8 * GIB // GPU) for i in devices))


def _task(dice: Dice) -> Task:
    key, claims = pick(dice, TASKS), _place(dice)
    carries = pick(dice, (claims, None, _place(dice)))
    phase = TaskPhase.WAITING if carries is None else TaskPhase.RUNNING
    return Task(*key, group="main", index=int(key[1][1:]), phase=phase, claims=claims, carries=carries)


def _ask(world: World, dice: Dice) -> None:
    world.node_class(pick(dice, ("default", "fast")), pick(dice, ((), ("a",))), pick(dice, SPECS))


def _suppose(world: World, dice: Dice) -> None:
    """Nested hypotheses, with classes made in between."""
    marks = [world.checkpoint()]
    for _ in range(dice.number(1, 8)):
        known = [key for key in TASKS if key in world.tasks]
        if known and chance(dice, 70):
            world.claim(pick(dice, known), _place(dice))
        elif chance(dice, 50):
            _ask(world, dice)
        elif chance(dice, 50):
            marks.append(world.checkpoint())
        elif len(marks) > 1:
            world.undo(marks.pop())
        _agree(world)
    world.undo(marks[0])


def _happen(world: World, dice: Dice) -> None:
    kind = dice.number(0, 9)
    if kind < 3:
        world.put(_node(dice))
    elif kind < 6:
        world.put(_task(dice))
    elif kind == 6 and world.nodes:
        world.drop(world.nodes[pick(dice, sorted(world.nodes))].row)
    elif kind == 7 and world.tasks:
        world.drop(world.tasks[pick(dice, sorted(world.tasks))])
    elif kind == 8:
        _suppose(world, dice)
    else:
        _ask(world, dice)


def _numbers(cls: NodeClass) -> tuple[object, ...]:
    looks = {look: list(entries) for look, entries in cls.looks.items()}
    sums = cls.free, cls.room, cls.usable, cls.largest, tuple(cls.sizes)
    return sorted(cls.nodes), list(cls.names), looks, dict(cls.idle), sums


def _agree(world: World) -> None:
    """Each class equals one built fresh."""
    for cls in list(world._classes.values()):
        spec = spec_of(cls)
        fresh = NodeClass(cls.pool, cls.types) if spec == PLAIN else Domain(cls.pool, cls.types, spec)
        members = [node for _, node in sorted(world.nodes.items()) if fresh.takes(node)]
        for node in members:
            fresh.add(node)
        found, expected = _numbers(cls), _numbers(fresh)
        for node in members:
            node.classes.remove(fresh)
        assert found == expected, (cls.pool, cls.types, spec)


@settings(max_examples=100)
@given(st.data())
def test_classes_are_as_if_made_now(data):
    dice = data.draw(st.composite(Drawn)())
    world = World()
    world.put(NodePool("fast", "fast", "pool", "fast"))
    world.put(Project("a", "a"))
    world.put(
        Workload("w", "w", "a", Kind.TRAINING, Launch("image"), (TaskGroup("main", Request(1), 6, 6, 6),))
    )
    for _ in range(dice.number(5, 40)):
        _happen(world, dice)
        note(f"{sorted(world.nodes)}, {sorted(key for key in world.tasks)}")
        _agree(world)
        assert world.snapshot() == world.fresh().snapshot()
