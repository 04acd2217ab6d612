"""The smallest world that shows each rule: without the rule something else would run in the end.

Each was found by taking the rule out of the core (`make mutants` tries more of that).
"""

import pytest

from tests.sched.ticker import settled

WORLDS = {
    # what holds: nodes, projects, jobs, the GPUs of everything that runs in the end, pools
    "limits": ("n1:3", "a=1:max=2", ["x a g1", "y a g1", "z a g1"], {"x": 1, "y": 1}, ""),
    "the minimum run time": (
        "n1:1", "a=1", ["low a g1 p25 @n1 ran=10", "high a g1 p80"], {"low": 1}, "default:min=60",
    ),
    "what is being given back is not free yet": ("n1:1", "a=1", ["x a g1 ~n1", "y a g1 p80"], {"y": 1}, ""),
    "one victim for one GPU": (
        "n1:3", "a=3", ["x a g1 p25 @n1", "y a g1 p25 @n1", "z a g1 p25 @n1", "high a g1 p80"],
        {"x": 1, "y": 1, "high": 1}, "",
    ),
    "nothing is taken from those below their quota": (
        "n1:2 n2:1 n3:1", "a=2 b=2 c=0", ["a1 a g2 @n1", "c1 c g1 @n2", "c2 c g1 @n3", "b1 b g2"],
        {"a1": 2, "c1": 1, "c2": 1}, "",
    ),
    "a gang starts whole": ("n1:1 n2:1", "a=2", ["pair a g1 x2", "w a g1 ~n2"], {"pair": 2}, ""),
    "the memory of a device": ("n1:1:mem=16", "a=2", ["x a m10Gi @n1", "y a m10Gi"], {"x": 0.625}, ""),
    "bonus evicts nobody": (
        "n1:2", "a=2", ["low a g1 p25 @n1", "e a g1 elastic p80 @n1*1"], {"low": 1, "e": 1}, "",
    ),
    "the elder of equal projects goes first": ("n1:1", "a=1 b=1", ["b1 b g1", "a1 a g1"], {"a1": 1}, ""),
    "non-preemptible work is no victim": (
        "n1:2", "a=1 b=1", ["b1 b g1 @n1", "b2 b g1 np @n1", "a1 a g1"], {"b2": 1, "a1": 1}, "",
    ),
    "priority counts in its own project only": (
        "n1:1 n2:2", "a=3 b=2", ["a1 a g1 p25 @n1", "b1 b g2 p25 @n2", "a2 a g2 p90"], {"a1": 1, "b1": 2}, "",
    ),
    "a fraction of two devices is of two": ("n1:2", "a=2", ["x a g0.5x2"], {"x": 1}, ""),
    "a toleration of one effect is of that alone": (
        "n1:1:taint=k.v/NoSchedule", "a=1", ["x a g1 stands=k/NoExecute"], {}, "",
    ),
    "each pool has its own quota": (
        "n1:1 n2:1:pool=fast", "a=1+fast=0", ["x a g1 np pool=fast", "y a g1 np"], {"y": 1}, "fast",
    ),
    "of preferred domains the emptiest is filled first": (
        " ".join(f"n{i}:1:zone=z:rack=r{i // 2}" for i in range(6)), "a=9",
        ["x a g1 np @n0", "j a g1 x3 np near=rack", "y a g1 x2 within=rack p25"], {"x": 1, "j": 3}, "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", WORLDS)
def test_it_decides_what_runs(rule: str) -> None:
    nodes, projects, jobs, running, pools = WORLDS[rule]
    assert settled(nodes, projects, *jobs, pools=pools).running() == running
