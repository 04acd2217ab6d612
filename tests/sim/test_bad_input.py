"""Errors in a trace or policy are all reported at once, with file and line."""

import json
import random
from pathlib import Path

import pytest

from pliant.sim.__main__ import main
from pliant.sim.lines import TraceError
from pliant.sim.policy import read_policy
from pliant.sim.reading import read
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


CORES = "submit_s,project,gpus,run_s,type,cores\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("0,a,1,5,B,", "no node has a GPU of model B"),
        ("0,a,1,5,,33", "the pod is larger than any node"),
        ("1e99999999,a,1,5,,", "submit_s is 1e99999999; at most 315360000 is possible"),
        ("0,a,1,5.0001,,", "run_s is 5.0001; at most three decimals are possible"),
        ("0,a,1,,,", "run_s is missing"),
    ],
)
def test_a_line_of_jobs_with_other_columns(tmp_path, capsys, line, said):
    trace = written(tmp_path, f"{CORES}{line}\n")
    assert refused(capsys, trace) == f"{tmp_path / 'jobs.csv'}:2: {said}"


@pytest.mark.parametrize(
    ("nodes", "projects", "said"),
    [
        (NODES + "n3,-1,,,\n", PROJECTS, "nodes.csv:4: gpus is -1; it must not be negative"),
        (NODES + f"n3,{'9' * 5000},,,\n", PROJECTS, "nodes.csv:4: gpus is 999"),
        (NODES[: len(NODES) - 7], PROJECTS, "nodes.csv:3: 3 values for 5 columns; the file may be cut off"),
        (NODES.splitlines()[0] + "\n", PROJECTS, "nodes.csv: there are no nodes"),
        ("gpus\n1\n", PROJECTS, "nodes.csv:1: no column name; the first line must name the columns"),
        (NODES, PROJECTS + "a,1,\n", "projects.csv:4: project a is already on line 2"),
        (NODES, PROJECTS + "c,,\n", "projects.csv:4: quota is missing"),
    ],
)
def test_nodes_and_projects(tmp_path, capsys, nodes, projects, said):
    told = refused(capsys, written(tmp_path, JOBS, nodes, projects))
    assert told.startswith(f"{tmp_path}/{said}")


def test_philly_files(tmp_path, capsys):
    nodes = (DATA / "philly_nodes.csv").read_text()
    for more, said in (
        ("ed69ec,3\n", "6: vc ed69ec is already on line 3"),
        ("x,-2\n", "6: node num is -2; it must not be negative"),
        ("x,\n", "6: node num is missing"),
        ("x", "6: 1 values for 2 columns; the file may be cut off here"),
    ):
        (tmp_path / "n.csv").write_text(nodes + more)
        assert (
            refused(capsys, DATA / "philly.csv", "--nodes", tmp_path / "n.csv") == f"{tmp_path}/n.csv:{said}"
        )
    (tmp_path / "n.csv").write_text(nodes.splitlines()[0] + "\n")
    assert "n.csv: there are no nodes" in refused(capsys, DATA / "philly.csv", "--nodes", tmp_path / "n.csv")
    jobs = (DATA / "philly.csv").read_text()
    (tmp_path / "p.csv").write_text(jobs[: len(jobs) // 2 - 3])
    at = (tmp_path / "p.csv").read_text().count("\n") + 1
    told = refused(capsys, tmp_path / "p.csv", "--nodes", DATA / "philly_nodes.csv")
    assert told.startswith(f"{tmp_path / 'p.csv'}:{at}: ") and "the file may be cut off here" in told
    (tmp_path / "p.csv").write_text(jobs + "2017-10-09 07:01:00,9,1,-9,ed69ec\n")
    told = refused(capsys, tmp_path / "p.csv", "--nodes", DATA / "philly_nodes.csv")
    assert told == f"{tmp_path / 'p.csv'}:62: gpu_time is -9; it must not be negative"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("baseline,5,6,20,100,small,1,1,1,1,1", "class small of configuration baseline is there twice"),
        ("baseline,5,6,30,100,tiny,1,1,1,1,1", "nominal_quota is 30, but 20 for the other classes"),
        ("baseline,5,6,20,100,huge,1,1,1,1,121", "the pod is larger than any node"),
        ("baseline,5,6,20,100,tiny,1,-1,1,1,1", "creation_interval_ms is -1; it must not be negative"),
        ("baseline,5,6,20,100,tiny,,1,1,1,1", "count_per_queue is missing"),
        ("baseline,5,6,20,100,ti", "6 values for 11 columns; the file may be cut off here"),
    ],
)
def test_a_configuration_of_kueue(tmp_path, capsys, line, said):
    (tmp_path / "k.csv").write_text((DATA / "kueue.csv").read_text() + line + "\n")
    assert refused(capsys, tmp_path / "k.csv") == f"{tmp_path / 'k.csv'}:5: {said}"
    assert "there is no configuration 'x'" in refused(capsys, DATA / "kueue.csv", "--config", "x")


OPENB_NODES = "sn,cpu_milli,memory_mib,gpu,model\na,8000,4096,2,T4\n"
OPENB = "cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n1000,64,1,500,,5,9\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1000,64,1,500,,5,4", "deletion_time is 4, before creation_time 5"),
        ("1000,64,1,500,,-5,4", "creation_time is -5; it must not be negative"),
        ("1000,64,1,500,V100,5,6", "no node has a GPU of model V100"),
        ("1000,64,3,1000,,5,6", "the pod is larger than any node"),
        ("1000,64,1,500,,5", "6 values for 7 columns; the file may be cut off here"),
    ],
)
def test_pods_of_openb_with_their_times(tmp_path, capsys, line, said):
    (tmp_path / "n.csv").write_text(OPENB_NODES)
    (tmp_path / "p.csv").write_text(f"{OPENB}{line}\n")
    told = refused(capsys, tmp_path / "p.csv", "--nodes", tmp_path / "n.csv")
    assert told == f"{tmp_path / 'p.csv'}:3: {said}"


NASTY = ("", "-1", "x", "nan", "1e999999999", "9" * 5000, "0", "'", '"', "\0", "yes", "a|b", "é", "1.5", "٣")


def _harmed(text: str, dice: random.Random) -> bytes:
    """A file randomly damaged: cells replaced or mixed, lines repeated, moved or cut."""
    lines = text.splitlines()
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(lines))
        cells = lines[at].split(",")
        match dice.randrange(5):
            case 0:
                cells[dice.randrange(len(cells))] = dice.choice(NASTY)
                lines[at] = ",".join(cells)
            case 1:
                lines.insert(at, dice.choice(lines))
            case 2:
                lines.insert(dice.randrange(len(lines)), lines.pop(at))
            case 3:
                lines[at] = ",".join(dice.sample(cells, len(cells)))
            case 4:
                lines[at] = lines[at][: dice.randrange(len(lines[at]) + 1)]
    data = "\n".join(lines).encode()
    return data[: dice.randrange(len(data))] if dice.random() < 0.2 else data


@pytest.mark.parametrize("seed", range(300))
def test_whatever_is_in_a_file_it_is_read_or_refused_by_name(tmp_path, seed):
    """Randomly damaged files give either a trace or an error that names a file."""
    dice = random.Random(seed)
    whole = {
        "nodes.csv": NODES, "projects.csv": PROJECTS, "jobs.csv": JOBS,
        "p.csv": (DATA / "philly.csv").read_text(), "n.csv": (DATA / "philly_nodes.csv").read_text(),
        "k.csv": (DATA / "kueue.csv").read_text(), "o.csv": OPENB, "on.csv": OPENB_NODES,
    }  # fmt: skip
    kinds = {
        ".": ("jobs.csv", "nodes.csv", "projects.csv"), "p.csv": ("p.csv", "n.csv"), "k.csv": ("k.csv",),
        "o.csv": ("o.csv", "on.csv"),
    }  # fmt: skip
    trace = dice.choice(list(kinds))
    harmed = dice.choice(kinds[trace])
    for name, text in whole.items():
        (tmp_path / name).write_bytes(_harmed(text, dice) if name == harmed else text.encode())
    nodes = kinds[trace][1] if trace in ("p.csv", "o.csv") else None
    try:
        found = read(tmp_path / trace, tmp_path / nodes if nodes else None)
    except TraceError as error:
        said = str(error).splitlines()
    else:
        said = []
        times = [job.workload.created for job in found.jobs]
        assert times == sorted(times)
        assert len({job.workload.id for job in found.jobs}) == len(times) > 0
    assert all(str(tmp_path) in line or "more lines" in line for line in said)


VALUES = (
    "-1",
    "0",
    "1.5",
    "true",
    '"x"',
    '"unlimited"',
    "[1]",
    "{a=1}",
    "9" * 30,
    '"9h"',
    "nan",
    "inf",
    '""',
)


@pytest.mark.parametrize("seed", range(200))
def test_whatever_is_in_a_policy_it_is_followed_or_refused_by_name(tmp_path, seed):
    dice = random.Random(seed)
    tables = {
        "settings": ("victims", "ageing", "past-use", "grow-delay", "x"),
        "projects.a": ("quota", "limit", "weight", "rank", "reclaim-min-runtime"),
        "departments.default": ("quota", "limit", "x"),
        "pools.default": ("strategy", "cpu-strategy", "device-strategy", "min-runtime"),
        "nodes": ("add", "like"),
    }
    name = dice.choice(list(tables))
    keys = dice.sample(tables[name], dice.randint(1, 2))
    text = f"[{name}]\n" + "".join(f"{key} = {dice.choice(VALUES)}\n" for key in keys)
    (tmp_path / "p.toml").write_text(text)
    trace = read(written(tmp_path / "t"))
    try:
        policy = read_policy(tmp_path / "p.toml")
        policy.check_names(trace)
        policy.over(trace)
        said = f"{tmp_path / 'p.toml'}:"
    except TraceError as error:
        said = str(error)
    assert said.startswith(f"{tmp_path / 'p.toml'}:"), text


def test_a_file_that_ends_within_a_line_is_read_with_a_warning(tmp_path, capsys):
    trace = written(tmp_path, JOBS, NODES, PROJECTS.rstrip("\n"))
    assert main(["run", str(trace)]) == 0
    told = (
        f"{tmp_path}/projects.csv: the last line does not end with a newline; its last value may be cut off"
    )
    assert json.loads(capsys.readouterr().out)["warnings"] == [told]
