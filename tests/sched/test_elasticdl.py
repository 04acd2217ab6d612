"""A master that starts alone, with workers from zero up, on nodes without GPUs: cores and memory decide."""

import pytest

from tests.sched.ticker import Ticker, settled

LOW = "low a c1 r1 q1000000 +worker c3 r4 x0-2 q1000 p1000"
HIGH = "high a c1 r1 q1000000 +worker c3 r4 x0-1 q1000000 p1000000"


def nodes(cpu: str, ram: str = "12") -> str:
    return " ".join(f"n{number}:0:cpu={cpu}:ram={ram}" for number in (1, 2, 3))


def placed(t: Ticker, name: str) -> dict[str, str]:
    """Node by task of those that run."""
    return {task.name: task.carries.node for task in t.scene.tasks_of(name) if task.carries is not None}


@pytest.mark.parametrize(
    ("cpu", "ram", "lost", "left"),
    [
        ("3.92", "12", [("worker-1",)], {"main-0": "n1", "worker-0": "n2"}),
        ("4", "12", [], {"main-0": "n1", "worker-0": "n1", "worker-1": "n2"}),
        ("16", "4", [("worker-1",)], {"main-0": "n1", "worker-0": "n2"}),  # memory counts like cores
    ],
    ids=["a core is cut", "all fits", "memory is short"],
)
def test_one_low_worker_goes_where_a_worker_shares_no_node_with_a_master(
    cpu: str, ram: str, lost: list[tuple[str, ...]], left: dict[str, str]
) -> None:
    t = settled(nodes(cpu, ram), "a=?", LOW)
    assert len(placed(t, "low")) == 3
    t.submit(HIGH)
    t.settle()
    assert len(placed(t, "high")) == 2
    assert placed(t, "low") == left
    taken = t.decisions(verb="shrink")
    assert [decision.tasks for decision in taken] == lost
    for decision in taken:
        assert (decision.action, decision.reason.code) == ("preempt", "preempted")
        assert decision.beneficiary == "high"
        assert dict(decision.reason.numbers)["beneficiary"] == "high"


def test_the_place_goes_back() -> None:
    t = settled(nodes("3.92"), "a=?", LOW)
    t.submit(HIGH)
    t.settle()
    t.finish("high")
    t.settle(wait=60_000)
    assert len(placed(t, "low")) == 3


@pytest.mark.parametrize(
    ("running", "comes", "expected"),
    [
        # equal priority takes nothing
        ("x a c1 r1 q9 +worker c3 r4 x0-2 q9 p9", "y a c1 r1 q9 +worker c3 r4 x0-1 q9 p9", {"x": 3, "y": 1}),
        # a master of high priority takes a low worker's place if it must
        ("x a c3 r4 q9 +worker c3 r4 x0-2 q1 p1", "y a c3 r4 q9 +worker c3 r4 x0-1 q1 p1", {"x": 2, "y": 1}),
        # a non-preemptible workload keeps its workers
        ("x a c1 r1 +worker c3 r4 x0-2 p1 np", "y a c1 r1 q9 +worker c3 r4 x0-1 q9 p9", {"x": 3, "y": 1}),
    ],
)
def test_who_takes_from_whom(running: str, comes: str, expected: dict[str, int]) -> None:
    t = settled(nodes("3.92"), "a=?", running)
    t.submit(comes)
    t.settle()
    assert {name: len(placed(t, name)) for name in ("x", "y")} == expected


def test_a_master_starts_without_a_place_for_any_worker() -> None:
    t = settled("n1:0:cpu=1.5:ram=8", "a=?", LOW)
    assert placed(t, "low") == {"main-0": "n1"}
    (verdict,) = t.plans[-1].verdicts
    reason = verdict.reason
    assert (reason.code, reason.asked, reason.short_of) == ("never-fits", 3000, "cpu")
