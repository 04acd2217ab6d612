"""Sentences that were hard to read, and their replacements: no old one is left, every new one is used."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
N = r"(?:[\w.-]+|\{[^{}]*\})"  # a number or name of the examples, or a program's placeholder

PAIRS = [
    ("that it can use the best has", f"Needs {N} GPUs on one node; {N} GPUs are free on {N} eligible nodes"),
    ("It waits for 2.00 GPUs", f"Needs {N} GPUs; the only eligible node, {N}, has"),
    ("No node can ever hold it", f"Never fits: it requests {N} GPUs, the largest eligible node has {N}"),
    ("Nothing is supposed", "Specify at least one change, for example --drain NODE"),
    ("does not take work any more", f"Evicted from node {N}: the node or its GPU is no longer schedulable"),
    ("; project default is inside its quota", f"Allocated 1 GPU on {N}, within the quota of project"),
    (", on idle GPUs:", f"Allocated 2 GPUs on {N}; project {N} is 1 GPU over its quota of 2"),
    ("cannot take that much", f"has {N} of its fair share of {N} GPUs, so it cannot reclaim {N} more"),
    ("is being given back", f"Waiting for {N} to release {N} GPUs on {N} \\(grace period, up to 30s\\)"),
    ("has a place and starts together", f"Gang: {N} is placed, waiting for {N} and {N}"),
    ("it is tried again after a pause", f"{N} failed 3 times; next attempt in 40s \\(backoff\\)"),
    ("submit it anew with other numbers", "Correct it and submit the job again"),
    (
        "has not yet run for the minimum",
        f"victim {N} is within the minimum runtime of pool {N} \\(4m left\\)",
    ),
    ("priority is 41 instead of 40", "raise its priority from 40 to 41"),
    (
        "it starts with fewer GPUs and grows",
        r"make it elastic \(--elastic\), so it can start with fewer GPUs",
    ),
    ("there is a node more in", f"add a node with 2 GPUs to pool {N}"),
    ("get free on node", f"{N} \\(project {N}\\) ends and frees 3 GPUs on {N}"),
    ("It is not known how long", "no running job has --max-runtime"),
    ("Never on this cluster as it is", "It cannot start on this cluster, even with every node empty"),
    ("Nothing waits.", "No pending jobs"),
    ("Nothing was submitted:", f"would start now on {N}"),  # behind "Dry run: NAME"
    ("stopped as told", "stopped by request"),
    ("nobody saw it end", "its processes are gone and no exit code was recorded"),
    ("The lines of a log carry no times", "has no timestamps"),
    ("There is no command `", f"Unknown command '{N}"),
    ("name that with -p PROJECT", "Use -p PROJECT for a job in another project"),
    ("tasks of {ask.name}: that cannot be", f"must satisfy min ≤ (?:requested ≤ )?max; got {N}"),
    ("A GPU quota of", f"Invalid (?:GPU )?(?:quota|{N})"),
    ("Name what to", "Specify job names or --all"),
    ("Keep its rest", "to keep the remaining tasks after a required task is lost"),
    ("It runs no longer", "Maximum runtime; makes the job eligible for backfill"),
    ("Wait so long before", "Preemption delay: time pending before it may preempt or reclaim"),
    ("Of these at most", "Maximum number of runs at the same time"),
    ("Delete it so long", "Delete the job this long after it ends"),
    ("For people at work", "Interactive session: non-preemptible, within quota only"),
    ("Likewise gone", "Remove these nodes and everything on them"),
    ("All nodes of that label", "Fail all nodes with this label"),
    ("Who is served first", "Priority: very-low"),
    ("Nothing is stopped for others before", "Minimum runtime before a job may be evicted"),
    ("Why is a workload where it is", "Explain the status of a workload and what would change it"),
    ("What was, over some time", "over a period"),
    ("shrunk and stretched", "Pliant packs, migrates and resizes jobs before it evicts any"),
    ("how a job stands", "status of a job|status as JSON"),
    ("has no record left for", f"global_batch.? ?=? ?(?:of )?{N} is too small for {N} workers"),
]


@functools.cache
def texts() -> str:
    """All the product's strings, the sentences about decisions, README and docs, without line breaks."""
    found = [
        (ROOT / "tests" / "wording" / "sentences.txt").read_text("utf-8"),
        (ROOT / "README.md").read_text(),
    ]
    found += [path.read_text("utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))]
    for path in sorted((ROOT / "src" / "pliant").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append(
                    "".join(
                        str(part.value) if isinstance(part, ast.Constant) else "{x}" for part in node.values
                    )
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(re.sub(r"\s+", " ", text) for text in found)


@pytest.mark.parametrize(("before", "after"), PAIRS, ids=[str(number) for number in range(1, len(PAIRS) + 1)])
def test_a_pair_is_applied(before: str, after: str) -> None:
    assert before not in texts()
    assert re.search(after, texts()), after
