"""A node's amounts per device are the sums over its tasks, whatever the order of changes."""

from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.model.machine import Gpu, Node, Placement, Share, larger
from pliant.model.quantity import GPU
from pliant.sched.world.nodes import NodeState

MEMORY = 80
GPUS = (
    Gpu("a", 0, MEMORY),
    Gpu("b", 1, MEMORY),
    Gpu("unknown-size", 2, 0),
    Gpu("foreign", 3, MEMORY, foreign=True),
)
SHARES = (
    (GPU, MEMORY, ""),  # all of a device
    (GPU, MEMORY, "me"),  # all memory of a device, with an owner
    (500, MEMORY // 2, "me"),
    (500, 0, ""),  # of a device of unknown size
    (GPU, 0, ""),
)
PLACES = st.none() | st.builds(
    lambda gpus, kind, cpu: Placement("n", tuple(Share(gpu.uuid, *kind) for gpu in gpus), cpu, cpu),
    st.lists(st.sampled_from(GPUS), max_size=2, unique=True),
    st.sampled_from(SHARES),
    st.integers(0, 2),
)
TASKS = tuple(("w", f"task-{at}") for at in range(3))


def by_owner(places: list[Placement], uuid: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for share in (share for place in places for share in place.shares if share.gpu == uuid):
        found[share.owner] = found.get(share.owner, 0) + share.portion
    return found


def summed(have: dict[tuple[str, str], tuple[Placement | None, Placement | None]]) -> tuple[object, ...]:
    """All sums that a node with these tasks (claim, carry) should have."""
    claims = [claim for claim, _ in have.values() if claim is not None]
    carried = [carry for _, carry in have.values() if carry is not None]
    held = [place for pair in have.values() if (place := larger(*pair)) is not None]
    devices = []
    for gpu in GPUS:
        sums = []
        for places in (claims, carried, held):
            shares = [it for place in places for it in place.shares if it.gpu == gpu.uuid]
            sums += [sum(it.portion for it in shares), sum(it.memory for it in shares)]
        devices.append((*sums, by_owner(claims, gpu.uuid), by_owner(held, gpu.uuid)))
    usable = [it for gpu, it in zip(GPUS, devices, strict=True) if not gpu.foreign]
    return (
        devices,
        sum(not (it[0] or it[1]) for it in usable),
        sum(not (it[4] or it[5]) for it in usable),
        sum(GPU - it[0] for it in usable),
        sum(0 < it[0] < GPU for it in devices),
        [sum(place.cpu for place in places) for places in (claims, carried, held)],
    )


def said(node: NodeState) -> tuple[object, ...]:
    sums = attrgetter(
        "claimed",
        "claimed_memory",
        "carried",
        "carried_memory",
        "held",
        "held_memory",
        "claimed_by",
        "held_by",
    )
    devices = list(map(sums, node.devices.values()))
    cores = [node.claimed_cpu, node.carried_cpu, node.held_cpu]
    return devices, node.free, node.idle, node.room, node.partly, cores


def stamps_of(node: NodeState) -> dict[str, int]:
    return {uuid: device.stamp for uuid, device in node.devices.items()}


def claimed_on(have: dict[tuple[str, str], tuple[Placement | None, Placement | None]]) -> dict[str, object]:
    """Who claims which share of each device."""
    claims = {key: claim for key, (claim, _) in have.items() if claim is not None}
    return {
        gpu.uuid: [(key, it) for key, place in claims.items() for it in place.shares if it.gpu == gpu.uuid]
        for gpu in GPUS
    }


@given(st.lists(st.tuples(st.sampled_from(TASKS), PLACES, PLACES, st.booleans()), max_size=8))
def test_a_node_is_the_sum_of_its_tasks(steps):
    node, have = NodeState(Node("n", gpus=GPUS, cpu=10, memory=10), "default"), {}
    for key, claim, carry, anew in steps:
        was_claim, was_carry = have.get(key, (None, None))
        stamps, before = stamps_of(node), claimed_on(have)
        if anew:  # its row changes
            node.account(key, was_claim, was_carry, -1)
            node.account(key, claim, carry, 1)
            have[key] = claim, carry
        else:  # its claim changes
            node.exchange(key, was_claim, claim, was_carry)
            have[key] = claim, was_carry
        assert said(node) == summed(have)
        now, since = claimed_on(have), stamps_of(node)
        assert not [uuid for uuid in stamps if before[uuid] != now[uuid] and stamps[uuid] == since[uuid]]
    for key, (claim, carry) in have.items():
        node.account(key, claim, carry, -1)
    assert said(node) == summed({})
    assert not node.tasks
    assert not any(it.tasks for it in node.devices.values())


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.uuid)
@pytest.mark.parametrize("share", SHARES)
def test_one_task_comes_and_goes(share, gpu):
    place = Placement("n", (Share(gpu.uuid, *share),))
    node, have = NodeState(Node("n", gpus=GPUS), "default"), {TASKS[0]: (place, place)}
    node.account(TASKS[0], place, place, 1)
    assert said(node) == summed(have)
    node.account(TASKS[0], place, place, -1)
    assert said(node) == summed({})


def test_of_two_places_the_larger_of_each_amount_is_held():
    one = Placement("n", (Share("a", 500, 40), Share("b", 200, 10)), cpu=1, memory=5)
    other = Placement("n", (Share("b", 300, 5),), cpu=2, memory=4)
    assert larger(one, other) == Placement("n", (Share("a", 500, 40), Share("b", 300, 10)), cpu=2, memory=5)
    assert (larger(one, None), larger(None, other), larger(None, None)) == (one, other, None)


def test_a_device_that_is_taken_or_given_back_has_another_stamp():
    node, place = NodeState(Node("n", gpus=GPUS), "default"), Placement("n", (Share("a", GPU, MEMORY),))
    stamps = [stamps_of(node)]
    node.take(TASKS[0], [node.devices["a"]])
    stamps.append(stamps_of(node))
    assert node.give(TASKS[0], place)
    stamps.append(stamps_of(node))
    assert len({it["a"] for it in stamps}) == 3
    assert len({it["b"] for it in stamps}) == 1
