"""`python -m pliant.sim packing`: reading traces, errors in them, and figures of small ones."""

import gzip
import json
import subprocess
import sys

import pytest

from pliant.sim.__main__ import main
from pliant.sim.openb import read_nodes, read_pods
from pliant.sim.packing import pack

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,8000,4096,2,T4\nb,16000,8192,2,V100\n"
PODS = "pos,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"


def _run(tmp_path, capsys, nodes=NODES, pods=PODS + "0,1000,64,1,1000,\n", *more):
    for name, text in (("nodes.csv", nodes), ("pods.csv", pods)):
        (tmp_path / name).write_text(text)
    files = ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv")]
    code = main(["packing", *files, *more])
    return code, json.loads(capsys.readouterr().out)


def test_figures_of_a_small_cluster(tmp_path, capsys):
    pods = PODS + "".join(f"{at},1000,64,1,1000,\n" for at in range(5)) + "5,1000,64,0,0,\n6,0,0,1,200,\n"
    code, found = _run(tmp_path, capsys, pods=pods)
    assert code == 0
    assert {name: found[name] for name in found if "decision" not in name} == {
        "nodes": 2,
        "gpus": 4,
        "pods": 7,
        "placed": 5,  # four with GPUs, one without
        "before_first_drop": 4,
        "moves": 0,
        "arrived": 130.0,
        "allocated": 100.0,
        "allocated_at_100": 100.0,
        "allocated_at_130": 100.0,
    }
    assert 0 < found["mean_decision_ms"] <= found["longest_decision_ms"]


def test_a_point_that_is_never_reached_is_null(tmp_path, capsys):
    assert _run(tmp_path, capsys)[1]["allocated_at_100"] is None


def test_a_model_is_used_by_those_who_ask_for_it(tmp_path, capsys):
    pods = PODS + "".join(f"{at},0,0,1,1000,T4\n" for at in range(3)) + "3,0,0,2,1000,T4|V100\n"
    assert _run(tmp_path, capsys, pods=pods)[1]["placed"] == 3


@pytest.mark.parametrize(("moves", "placed", "moved"), [(0, 2, 0), (1, 2, 0), (2, 3, 2), (50, 3, 2)])
def test_pods_are_moved_within_the_budget(tmp_path, capsys, moves, placed, moved):
    """Two pods that may run anywhere occupy the node that the third one needs."""
    pods = PODS + "0,1000,64,1,1000,\n1,1000,64,1,1000,\n2,1000,64,2,1000,T4\n"
    found = _run(tmp_path, capsys, NODES, pods, "--moves", str(moves))[1]
    assert (found["placed"], found["moves"]) == (placed, moved)
    assert found["allocated"] == (100.0 if placed == 3 else 50.0)


@pytest.mark.parametrize(("between", "moved"), [(990, 1), (1000, 2)])
def test_a_move_no_longer_counts_after_a_thousand_arrivals(tmp_path, capsys, between, moved):
    nodes = NODES.replace("b,16000,8192,2", "b,32000,8192,4") + "c,16000,8192,2,P100\n"
    kinds = ["1,1000,", "2,1000,T4", "2,1000,P100", *["0,0,"] * between, "2,1000,P100"]
    pods = PODS + "".join(f"{at},0,0,{kind}\n" for at, kind in enumerate(kinds))
    found = _run(tmp_path, capsys, nodes, pods, "--moves", "1")[1]
    assert (found["moves"], found["placed"]) == (moved, 1 + moved + between)


def test_the_same_trace_gives_the_same_figures(tmp_path):
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(
        PODS + "".join(f"{at},1500,99,1,{at % 9 * 100 + 100},\n" for at in range(20))
    )
    nodes = read_nodes(tmp_path / "nodes.csv")
    one, two = (pack(nodes, read_pods(tmp_path / "pods.csv", nodes)).document() for _ in range(2))
    assert {name: one[name] for name in one if "decision" not in name} == {
        name: two[name] for name in two if "decision" not in name
    }


@pytest.mark.parametrize(
    ("nodes", "pods", "text"),
    [
        (
            "sn,cpu_milli\n",
            "",
            "nodes.csv:1: no column memory_mib, gpu, model; the first line must name the columns",
        ),
        (NODES + "c,-5,1,1,T4\n", "", "nodes.csv:4: cpu_milli is -5; it must not be negative"),
        (NODES + "c,,1,1,T4\n", "", "nodes.csv:4: cpu_milli is missing"),
        (NODES + "c,much,1,1,T4\n", "", "nodes.csv:4: cpu_milli is 'much', not a whole number"),
        (NODES + "a,8000,4096,2,T4\n", "", "nodes.csv:4: node a is already on line 2"),
        (NODES + "c,1,1,1,\n", "", "nodes.csv:4: model is missing"),
        (NODES + "c,80", "", "nodes.csv:4: 2 values for 5 columns; the file may be cut off here"),
        (NODES.splitlines()[0] + "\n", "", "nodes.csv: no node has a GPU"),
        (NODES, "", "pods.csv:1: no column cpu_milli, memory_mib, num_gpu, gpu_milli; the first line must"),
        (NODES, PODS, "pods.csv: there are no pods"),
        (NODES, PODS + "0,1,1,1,-1,\n", "pods.csv:2: gpu_milli is -1; it must not be negative"),
        (NODES, PODS + "0,1,1,1,1001,\n", "pods.csv:2: gpu_milli is 1001; at most 1000 is possible"),
        (NODES, PODS + "0,1,1,1,0,\n", "pods.csv:2: gpu_milli is 0 but num_gpu is 1"),
        (
            NODES,
            PODS + "0,1,1,2,500,\n",
            "pods.csv:2: gpu_milli is 500 but num_gpu is 2; only one GPU can be shared",
        ),
        (NODES, PODS + "0,1,1,1,500,\n0,1,1,1,500,\n", "pods.csv:3: pos 0 is there twice"),
        (
            NODES,
            PODS + "1,1,1,1,500,\n0,1,1,1,500,\n",
            "pods.csv:3: pos 0 follows 1; pods must be in the order",
        ),
        (NODES, PODS + "0,1,1,1,500,P100\n", "pods.csv:2: no node has a GPU of model P100"),
        (NODES, PODS + "0,1,1,3,1000,\n", "pods.csv:2: the pod is larger than any node"),
        (NODES, PODS + "0,1,1,1,5", "pods.csv:2: 5 values for 6 columns; the file may be cut off here"),
        (NODES, PODS + '0,1,1,1,500,"T4\n', "pods.csv:2: unexpected end of data"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(tmp_path, capsys, nodes, pods, text):
    code, found = _run(tmp_path, capsys, nodes, pods)
    assert code == 2
    assert found["error"].removeprefix(f"{tmp_path}/").startswith(text)


def test_a_compressed_file_that_is_cut_off(tmp_path, capsys):
    whole = gzip.compress((PODS + "".join(f"{at},1,1,1,500,\n" for at in range(5000))).encode())
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv.gz").write_bytes(whole[: len(whole) // 2])
    assert main(["packing", "--nodes", f"{tmp_path}/nodes.csv", "--pods", f"{tmp_path}/pods.csv.gz"]) == 2
    assert (
        json.loads(capsys.readouterr().out)["error"]
        == f"{tmp_path}/pods.csv.gz: the compressed file is cut off or damaged"
    )


def test_a_file_that_is_not_there(tmp_path, capsys):
    (tmp_path / "nodes.csv").write_text(NODES)
    assert main(["packing", "--nodes", f"{tmp_path}/nodes.csv", "--pods", f"{tmp_path}/none.csv"]) == 2
    assert "none.csv: cannot be read: No such file" in json.loads(capsys.readouterr().out)["error"]


def test_the_command_prints_what_the_simulator_found(tmp_path):
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS + "0,1000,64,2,1000,V100\n1,0,0,1,500,T4\n")
    words = ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "pods.csv")]
    done = _pliant("sim", "packing", *words, "-o", "json")
    assert (done.returncode, json.loads(done.stdout)["allocated"]) == (0, 62.5)
    table = _pliant("sim", "packing", *words).stdout.splitlines()
    assert table[2].split(maxsplit=1) == ["Pods:", "2, 2 placed"]
    assert table[4].endswith("never reached")


def test_the_command_refuses_a_trace_that_is_wrong(tmp_path):
    (tmp_path / "nodes.csv").write_text(NODES)
    words = ["--nodes", str(tmp_path / "nodes.csv"), "--pods", str(tmp_path / "none.csv")]
    done = _pliant("sim", "packing", *words, "-o", "json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "none.csv: cannot be read: No such file" in done.stderr


def _pliant(*words):
    return subprocess.run(
        [sys.executable, "-m", "pliant.cli", *words], capture_output=True, text=True, check=False, timeout=240
    )
