"""What may be wrong with a trace or a policy: named with its file and line, all of it at once."""

import json
from pathlib import Path

import pytest

from pliant.sim.__main__ import main
from tests.sim.small import HEAD, JOBS, NODES, PROJECTS, written

DATA = Path(__file__).parent / "data"


def refused(capsys, *words):
    assert main(["run", *map(str, words)]) == 2
    return json.loads(capsys.readouterr().out)["error"]


JOB_LINES = [
    ("-1,a,1,5,,,,,,", "submit_s is -1; it must not be negative"),
    ("x,a,1,5,,,,,,", "submit_s is 'x', not a number"),
    ("1,,1,5,,,,,,", "project is missing"),
    ("1,c,1,5,,,,,,", "project c is not in projects.csv"),
    ("1,a,1.5,5,,,,,,", "gpus is 1.5: whole GPUs or a fraction of one"),
    ("1,a,5,5,,,,,,", "the pod is larger than any node"),
    ("1,a,1,-5,,,,,,", "run_s is -5; it must not be negative"),
    ("1,a,1,nan,,,,,,", "run_s is nan; at most three decimals are possible"),
    ("1,a,1,5,,0,,,,", "tasks is 0"),
    ("1,a,1,5,,2,yes,,,", "elastic needs one task of whole GPUs"),
    ("1,a,1,5,,,maybe,,,", "elastic is 'maybe', not yes or no"),
    ("1,a,1,5,,,,sometimes,,", "preemptibility is 'sometimes'"),
    ("1,a,1,5,,,,non-preemptible,yes,", "a background job is preemptible"),
    ("1,a,1", "3 values for 10 columns; the file may be cut off here"),
]


@pytest.mark.parametrize(("line", "said"), JOB_LINES, ids=[said for _, said in JOB_LINES])
def test_a_line_of_jobs(tmp_path, capsys, line, said):
    trace = written(tmp_path, f"{HEAD}0,a,1,5,,,,,,\n{line}\n")
    assert f"{tmp_path / 'jobs.csv'}:3: {said}" in refused(capsys, trace)


def test_all_that_is_wrong_is_told_at_once(tmp_path, capsys):
    jobs = f"{HEAD}9,a,1,5,x,,,,,\n8,a,1,5,,,,,,\n9,a,1,5,x,,,,,\n"
    trace = written(tmp_path, jobs, NODES + "n1,2,,,\n", PROJECTS + "c,4,2\n")
    assert refused(capsys, trace).splitlines() == [
        f"{tmp_path / 'nodes.csv'}:4: node n1 is already on line 2",
        f"{tmp_path / 'projects.csv'}:4: limit is 2, below the quota of 4",
        f"{tmp_path / 'jobs.csv'}:3: submit_s goes back from 9 to 8",
        f"{tmp_path / 'jobs.csv'}:4: job x is already on line 2",
    ]


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (
            "[settings]\nvictms = 'least'\n",
            "2: settings.victms: There is no scheduling setting",
        ),
        ("[settings]\nageing = 'soon'\n", "2: settings.ageing: ageing cannot be 'soon'"),
        ("[projects.a]\nquoat = 3\n", "2: quoat: is not one of projects.a; did you mean quota?"),
        ("[projects.a]\nquota = 'much'\n", "2: projects.a.quota: 'much' is not a number of GPUs"),
        ("\n[projects.x]\nquota = 3\n", "2: projects.x: is not one of the projects of this trace"),
        ("[nodes]\nadd = -1\n", "2: nodes.add: -1 is not a number from 0 to 10000"),
        ("[nodes]\nadd = 1\nlike = 'n9'\n", "3: nodes.like = n9: is not one of the nodes of this trace"),
        ("[pools.default]\nstrategy = 'heap'\n", "2: pools.default.strategy: 'heap' is not pack or spread"),
        ("[setings]\n", "1: setings: is not one of a policy; did you mean settings?"),
        ("a = = 1\n", "Invalid value"),
    ],
)
def test_a_policy(tmp_path, capsys, policy, said):
    (tmp_path / "p.toml").write_text(policy)
    told = refused(capsys, written(tmp_path / "t"), "--policy", tmp_path / "p.toml")
    assert told.startswith(str(tmp_path / "p.toml")) and said in told


def test_files_that_are_none(tmp_path, capsys):
    assert "there is no such file or folder" in refused(capsys, tmp_path / "x")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    assert "x.csv:1: these columns are of no trace that is known" in refused(capsys, tmp_path / "x.csv")
    assert "nodes are in a file of their own: --nodes FILE" in refused(capsys, DATA / "philly.csv")
    (tmp_path / "r.jsonl").write_text('{"v":1,"program":"0.0.1"}\n')
    assert "recorded by an older Pliant" in refused(capsys, tmp_path / "r.jsonl")
    trace = written(tmp_path / "t", JOBS)
    (trace / "nodes.csv").unlink()
    assert "nodes.csv: cannot be read: No such file or directory" in refused(capsys, trace)


def test_philly_lines(tmp_path, capsys):
    lines = (DATA / "philly.csv").read_text().splitlines()
    wrong = [
        "2017-10-09 07:61:00,1,1,1,ed69ec",
        "2017-10-09 07:01:00,1,12,1,ed69ec",
        "2017-10-09 07:01:00,1,0,1,x",
    ]
    (tmp_path / "p.csv").write_text("\n".join([*lines, *wrong]) + "\n")
    told = refused(capsys, tmp_path / "p.csv", "--nodes", DATA / "philly_nodes.csv").splitlines()
    assert told == [
        f"{tmp_path / 'p.csv'}:62: timestamp is '2017-10-09 07:61:00', not a time such as "
        "2017-10-09 07:01:55",
        f"{tmp_path / 'p.csv'}:63: num_gpus is 12: more than a node has and no multiple of 8",
        f"{tmp_path / 'p.csv'}:64: num_gpus is 0",
    ]
