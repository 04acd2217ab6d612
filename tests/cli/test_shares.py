"""The use of GPU shares, in every table that shows it."""

from tests.cli.items import node, workload

SHARE = {
    "workload": "half",
    "pod": "half-task-0",
    "gpu": "GPU-0",
    "limitBytes": 8 << 30,
    "requestBytes": 8 << 30,
    "usedBytes": 7864 << 20,
    "processes": 1,
    "refused": 0,
    "enforcement": "cooperative",
    "why": "no namespaces",
    "trouble": "process 7 (x) is outside",
}


def test_a_share_in_every_table(fake, run):
    fake.nodes = [node("node-1", 0.5)]
    fake.workloads = [workload("half", gpu=0.5, fraction="cooperative: no namespaces", gpuShares=[SHARE])]
    line = "half-task-0  GPU-0  7864MiB  8192MiB  8192MiB  1          0        cooperative"
    for command in ("describe job half -p team-a", "training describe half -p team-a"):
        said = run(f"pliant {command}").out
        assert line in said.splitlines() and "half-task-0: process 7 (x) is outside" in said
        assert "cooperative: no namespaces" in said
    assert "  7.7Gi  " in run("runai top job half -p team-a").out
    for command in ("describe node node-1", "top node -d"):
        assert "0    0.50       16Gi    7.7Gi" in run(f"pliant {command}").out
