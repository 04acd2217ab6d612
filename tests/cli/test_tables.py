"""Every table as it is printed."""
# ruff: noqa: E501 - tables are as wide as they are

import json
import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from pliant.cli.output import workload_tables
from pliant.cli.output.formats import as_yaml
from pliant.cli.output.tables import grouped, table
from tests.cli.fake import Answer
from tests.cli.items import EVENT, node, pending, unit, workload


@pytest.fixture(autouse=True)
def later(monkeypatch):
    """Sets the time to nine seconds after all items were created."""
    monkeypatch.setattr("time.time", lambda: 1767225609.0)


@pytest.fixture
def walkthrough(fake, run):
    """The over-quota walk-through after its third step, and one workload of each other kind."""
    fake.workloads = [
        workload("a2", gpu=2.0),
        pending("a1"),
        workload("frac05", gpu=0.5, elastic=False),
        workload("elastic1", gpu=1.0, allocated=2.0, elastic=True),
        workload("filler1", type="Workspace", jobType="Interactive", preemptible=False, images=["ubuntu"]),
        workload("job-0", memory="5G", allocated=0.3, status="Running"),
        workload("done", allocated=0.0, phase="Completed", status="Succeeded", runningPods=0),
        workload("b1", projectName="team-b", node="<multiple>"),
    ]
    run("pliant project set team-a")
    return fake


def test_list(walkthrough, run):
    assert run("pliant list").out == snapshot("""\
Showing jobs for project team-a
NAME      STATUS     AGE  NODE    IMAGE                           TYPE         PROJECT  USER   GPUs Allocated (Requested)  PODs Running (Pending)  SERVICE URL(S)
a1        Pending    9s           runai.jfrog.io/demo/quickstart  Train        team-a   yaron  0.00 (1.00)                 0 (1)
a2        Running    9s   node-1  runai.jfrog.io/demo/quickstart  Train        team-a   yaron  2.00 (2.00)                 1 (0)
done      Succeeded  9s   node-1  runai.jfrog.io/demo/quickstart  Train        team-a   yaron  -                           0 (0)
elastic1  Running    9s   node-1  runai.jfrog.io/demo/quickstart  Train        team-a   yaron  2.00 (1.00)                 1 (0)
filler1   Running    9s   node-1  ubuntu                          Interactive  team-a   yaron  1.00 (1.00)                 1 (0)
frac05    Running    9s   node-1  runai.jfrog.io/demo/quickstart  Train        team-a   yaron  0.50 (0.50)                 1 (0)
job-0     Running    9s   node-1  runai.jfrog.io/demo/quickstart  Train        team-a   yaron  0.30 (5G)                   1 (0)
""")


def test_list_jobs_of_all_projects(walkthrough, run):
    assert run("pliant list jobs -A").out == snapshot("""\
NAME      STATUS     AGE  NODE        IMAGE                           TYPE         PROJECT  USER   GPUs Allocated (Requested)  PODs Running (Pending)  SERVICE URL(S)
a1        Pending    9s               runai.jfrog.io/demo/quickstart  Train        team-a   yaron  0.00 (1.00)                 0 (1)
a2        Running    9s   node-1      runai.jfrog.io/demo/quickstart  Train        team-a   yaron  2.00 (2.00)                 1 (0)
done      Succeeded  9s   node-1      runai.jfrog.io/demo/quickstart  Train        team-a   yaron  -                           0 (0)
elastic1  Running    9s   node-1      runai.jfrog.io/demo/quickstart  Train        team-a   yaron  2.00 (1.00)                 1 (0)
filler1   Running    9s   node-1      ubuntu                          Interactive  team-a   yaron  1.00 (1.00)                 1 (0)
frac05    Running    9s   node-1      runai.jfrog.io/demo/quickstart  Train        team-a   yaron  0.50 (0.50)                 1 (0)
job-0     Running    9s   node-1      runai.jfrog.io/demo/quickstart  Train        team-a   yaron  0.30 (5G)                   1 (0)
b1        Running    9s   <multiple>  runai.jfrog.io/demo/quickstart  Train        team-b   yaron  1.00 (1.00)                 1 (0)
""")


def test_list_all(walkthrough, run):
    assert run("pliant list -A").out == snapshot("""\
Workload  Type       Status     Project  Running/Req. Pods  GPU Alloc.
──────────────────────────────────────────────────────────────────────
a1        Training   Pending    team-a   0/1                0.00
a2        Training   Running    team-a   1/1                2.00
done      Training   Completed  team-a   0/1                0.00
elastic1  Training   Running    team-a   1/1                2.00
filler1   Workspace  Running    team-a   1/1                1.00
frac05    Training   Running    team-a   1/1                0.50
job-0     Training   Running    team-a   1/1                0.30
b1        Training   Running    team-b   1/1                1.00
""")


def test_workload_list(walkthrough, run):
    assert run("pliant workload list -A").out == run("pliant list -A").out


def test_training_list(walkthrough, run):
    assert run("pliant training list").out == snapshot("""\
Workload  Type      Status     Project  Preemptible  Running/Requested Pods  GPU Allocation
───────────────────────────────────────────────────────────────────────────────────────────
a1        Training  Pending    team-a   Yes          0/1                     0.00
a2        Training  Running    team-a   Yes          1/1                     2.00
done      Training  Completed  team-a   Yes          0/1                     0.00
elastic1  Training  Running    team-a   Yes          1/1                     2.00
frac05    Training  Running    team-a   Yes          1/1                     0.50
job-0     Training  Running    team-a   Yes          1/1                     0.30
""")


def test_workspace_list(walkthrough, run):
    assert run("pliant workspace list").out == snapshot("""\
Workload  Type       Status   Project  Preemptible  Running/Requested Pods  GPU Allocation
──────────────────────────────────────────────────────────────────────────────────────────
filler1   Workspace  Running  team-a   No           1/1                     1.00
""")


def test_list_wide(walkthrough, run):
    assert run("pliant training list -o wide --columns workload,status,reason").out == snapshot("""\
Workload  Status     Reason
────────────────────────────────────────────────
a1        Pending    1 GPU is free, 2 are needed
a2        Running
done      Completed
elastic1  Running
frac05    Running
job-0     Running
""")


def test_list_without_headers(walkthrough, run):
    assert run("pliant list --no-headers --columns name,status").out == snapshot("""\
a1        Pending
a2        Running
done      Succeeded
elastic1  Running
filler1   Running
frac05    Running
job-0     Running
""")


def test_list_of_named_ones(walkthrough, run):
    assert run("pliant list jobs a2 --no-headers --columns name").out == "a2\n"


def test_list_by_status(walkthrough, run):
    assert run("pliant workload list --status pending --no-headers --columns workload").out == "a1\n"


def test_empty_list(fake, run):
    assert run("pliant list -p team-a").out == snapshot("""\
Showing jobs for project team-a
NAME  STATUS  AGE  NODE  IMAGE  TYPE  PROJECT  USER  GPUs Allocated (Requested)  PODs Running (Pending)  SERVICE URL(S)
""")


def test_list_names(walkthrough, run):
    assert run("pliant list -o name").out.split() == [
        "a1",
        "a2",
        "done",
        "elastic1",
        "filler1",
        "frac05",
        "job-0",
    ]


def test_list_json_is_what_the_server_said(walkthrough, run):
    assert json.loads(run("pliant list -A -o json").out) == workload_tables.ordered(walkthrough.workloads)
    assert run("pliant list -A --json").out == run("pliant list -A -o json").out


def test_list_yaml_is_the_same(walkthrough, run):
    assert yaml.safe_load(run("pliant list -A -o yaml").out) == workload_tables.ordered(walkthrough.workloads)


def test_no_colour_anywhere(walkthrough, run):
    for line in ("list", "list -A", "describe job a2", "top node", "list nodes", "project list"):
        assert "\x1b" not in run(f"pliant {line}").out


def test_list_projects(fake, run):
    fake.projects[1] = unit(
        "team-a",
        2.0,
        3.0,
        1.0,
        schedulingRules={"interactiveJobTimeLimitSeconds": 3600},
        nodeTypes={"workspace": ["a", "b"], "training": ["b"]},
    )
    run("pliant project set team-a")
    assert run("pliant list projects").out == snapshot("""\
PROJECT           DEPARTMENT  DESERVED GPUs  INT LIMIT  INT AFFINITY  TRAIN AFFINITY
default           default     -              -          -             -
team-a (default)  default     2.00           1h0m0s     a;b           b
team-b            default     2.00           -          -             -
""")
    assert run("pliant project list").out == snapshot("""\
Project           Department  GPU Quota  Allocated GPUs  Over Quota  Past Use
─────────────────────────────────────────────────────────────────────────────
default           default     0.00       0.00            0.00        -
team-a (current)  default     2.00       3.00            1.00        -
team-b            default     2.00       0.00            0.00        -
""")
    assert run("pliant project list -o wide --no-headers").out == snapshot("""\
default           default  0.00  0.00  0.00  -  0.00  -  -  Medium Low  Ready
team-a (current)  default  2.00  3.00  1.00  -  2.00  -  -  Medium Low  Ready
team-b            default  2.00  0.00  0.00  -  2.00  -  -  Medium Low  Ready
""")
    assert run("pliant project list -o name").out == "default\nteam-a\nteam-b\n"


def test_department_list(fake, run):
    assert run("pliant department list").out == snapshot("""\
Department  GPU Quota  Allocated GPUs  Over Quota
─────────────────────────────────────────────────
default     4.00       0.00            0.00
""")


def test_nodes(fake, run):
    fake.nodes = [node("node-1", 1.0, 0.5), node("node-2", draining=True, labels={})]
    assert run("pliant list nodes").out == snapshot("""\
GENERAL                                               CPU                     MEMORY                  GPU
NAME    STATUS                    IP Address  ROLE    ALLOCATABLE  ALLOCATED  ALLOCATABLE  ALLOCATED  TYPE           ALLOCATABLE  FREE
node-1  Ready                     <none>      worker  32           2          128Gi        200Mi      Simulated-16G  2            0.50
node-2  Ready,SchedulingDisabled  <none>      worker  32           2          128Gi        200Mi      <none>         -            -
""")
    assert run("pliant list nodes node-2 --no-headers").out == snapshot(
        "node-2  Ready,SchedulingDisabled  <none>      worker  32           2          128Gi        200Mi      <none>  -            -\n"
    )
    assert run("pliant node list").out == snapshot("""\
Node    Status                    Node Pool  GPU Type       GPU Devices  Allocated GPUs  CPU   CPU Memory
──────────────────────────────────────────────────────────────────────────────────────────────────────────
node-1  Ready                     default    Simulated-16G  2            1.50            2/32  200Mi/128Gi
node-2  Ready,SchedulingDisabled  default    <none>         0            0.00            2/32  200Mi/128Gi
""")
    assert run("pliant top node -d").out == snapshot("""\
                                  GPU                   CPU                  MEMORY
NAME    STATUS                    CAPACITY  ALLOCATED   CAPACITY  ALLOCATED  CAPACITY  ALLOCATED
node-1  Ready                     2         1.50 (75%)  32        2 (6%)     128Gi     200Mi (0%)
node-2  Ready,SchedulingDisabled  0         0.00 (-)    32        2 (6%)     128Gi     200Mi (0%)

node-1
GPU  ALLOCATED  MEMORY  USED  WORKLOADS
0    1.00       16Gi          a2
1    0.50       16Gi          a2
""")
    assert run("pliant describe node node-1").out == snapshot("""\
NAME: node-1
STATUS: Ready
NODE POOL: default
LABELS: run.ai/type=a
TAINTS: <none>
SIMULATED: yes
CPU ALLOCATABLE: 32
CPU ALLOCATED: 2
MEMORY ALLOCATABLE: 128Gi
MEMORY ALLOCATED: 200Mi
GPU TYPE: Simulated-16G
GPUS ALLOCATABLE: 2
GPUS ALLOCATED: 1.50

GPU  ALLOCATED  MEMORY  USED  WORKLOADS
0    1.00       16Gi          a2
1    0.50       16Gi          a2
""")


def test_top_job(walkthrough, run):
    assert run("runai top job a2 job-0").out == snapshot("""\
NAME   PROJECT  STATUS   GPUS  GPU MEMORY  USED  CPU  MEMORY  NODES
a2     team-a   Running  2.00  16Gi              1    100Mi   node-1
job-0  team-a   Running  0.30  16Gi              1    100Mi   node-1
""")


def test_node_pools(fake, run):
    fake.pools.append(
        {
            "id": "2",
            "name": "h100",
            "labelKey": "gpu",
            "labelValue": "h100",
            "placementStrategy": {"cpu": "spread", "gpu": "spread"},
            "minRuntimeSeconds": 120,
            "phase": "Ready",
        }
    )
    assert run("pliant nodepool list").out == snapshot("""\
Node Pool  Label     GPU Placement  Topology  Min Runtime  Status
─────────────────────────────────────────────────────────────────
default    -         binpack        -         -
h100       gpu=h100  spread         -         2m0s         Ready
""")


def test_clusters(fake, run):
    assert run("pliant list clusters").out == snapshot("""\
Configured clusters on this computer are:
CLUSTER            CURRENT PROJECT
default (current)  default
""")
    assert run("pliant cluster list").out == snapshot("""\
Cluster            UUID                                  Status     Version
───────────────────────────────────────────────────────────────────────────
default (current)  11111111-2222-3333-4444-555555555555  Connected  0.1.0
""")


def test_describe_job(fake, run):
    fake.workloads = [
        workload("a1", gpu=0.5, command="python", arguments="train.py", fraction="scheduled, not enforced")
    ]
    assert run("pliant describe job a1 -p team-a").out == snapshot("""\
NAME: a1
NAMESPACE: runai-team-a
TYPE: Train
STATUS: Running
TRAINING DURATION: 1h2m5s
GPUS: 0.50
TOTAL REQUESTED GPUS: 0.50
ALLOCATED GPUS: 0.50
ALLOCATED GPUS MEMORY: 16Gi
RUNNING PODS: 1
PENDING PODS: 0
PARALLELISM: 1
COMPLETIONS: 1
SUCCEEDED PODS: 0
FAILED PODS: 0
IS DISTRIBUTED WORKLOAD: false
CREATED BY CLI: true
SERVICE URL(S):
COMMAND LINE: python train.py
PROJECT: team-a
PRIORITY: low (40)
PREEMPTIBLE: yes
ELASTIC: no
MEMORY: 100Mi (counted, not enforced)
CORES: 1 (counted, not enforced)
GPU FRACTION: scheduled, not enforced

Pods:
POD        STATUS   TYPE   AGE  NODE
a1-main-0  RUNNING  TRAIN  9s   node-1/N/A

Events:
SOURCE       TYPE    AGE  MESSAGE
------       ----    ---  -------
Workload/a1  Normal  9s   [Started] placed on node-1, 1 GPU
""")
    assert run("pliant get a1 -p team-a").out == run("pliant describe job a1 -p team-a").out


def test_describe_json_has_pods_and_events(fake, run):
    fake.workloads = [workload("a1")]
    described = json.loads(run("pliant describe job a1 -p team-a -o json").out)
    assert described["name"] == "a1"
    assert [pod["name"] for pod in described["pods"]] == ["a1-main-0"]
    assert [event["reason"] for event in described["events"]] == ["Started"]


def test_describe_of_the_second_edition(fake, run):
    fake.workloads = [pending("a1")]
    assert run("pliant training describe a1 -p team-a").out == snapshot("""\
General:
  Name            a1
  ID              id-a1
  Type            Training
  Status          Pending
  Project         team-a
  Department      default
  Submitted by    yaron
  Created         2026-01-01T00:00:00.000Z
  Priority        low
  Preemptible     Yes
  Elastic         No
  Image           runai.jfrog.io/demo/quickstart
  Running time    1h2m5s
  Pending time    3s
  Reason          [no-room] 1 GPU is free, 2 are needed
  Queue position  1

Compute:
  GPU requested           1.00
  GPU allocated           0.00
  GPU memory allocated    16Gi
  CPU cores per pod       1.0
  CPU memory per pod      100Mi
  Running/Requested Pods  0/1
  Node pools              default

Pods:
POD        STATUS   TYPE   AGE  NODE
a1-main-0  RUNNING  TRAIN  9s   node-1/N/A

Events:
SOURCE       TYPE    AGE  MESSAGE
------       ----    ---  -------
Workload/a1  Normal  9s   [Started] placed on node-1, 1 GPU
""")


def test_why(fake, run):
    fake.workloads = [pending("a1")]
    fake.answers["GET", "/api/v1/workloads/id-a1/why"] = Answer(
        body={
            "reason": fake.workloads[0]["reason"],
            "position": 2,
            "ahead": [{"name": "b2", "project": "team-b", "gpus": 1.0}],
            "aheadCount": 1,
            "aheadGpus": 1.0,
            "history": [EVENT],
        }
    )
    assert run("pliant why a1 -p team-a").out == snapshot("""\
a1 (project team-a): Pending
Reason: 1 GPU is free, 2 are needed [no-room]
Position 2 in the queue, after b2 (team-b, 1 GPU)

History:
TIME                      EVENT    WHY
2026-01-01T00:00:00.000Z  Started  placed on node-1, 1 GPU
""")


@pytest.fixture
def tokyo():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("tokyo")
def test_why_until_in_local_time(fake, run):
    fake.workloads = [pending("a1")]
    reason = {"code": "reserved", "message": "Kept for b.", "numbers": {"until": 1_767_225_600_999}}
    fake.answers["GET", "/api/v1/workloads/id-a1/why"] = Answer(body={"reason": reason})
    assert run("pliant why a1 -p team-a").out.splitlines()[1:] == [
        "Reason: Kept for b. [reserved]",
        "Until: 2026-01-01 09:00:00+09:00 at the latest",
    ]


def test_queue(fake, run):
    assert run("pliant queue").out == "No pending jobs.\n"
    entry = {
        "position": 1,
        "name": "a1",
        "project": "team-a",
        "gpus": 2.0,
        "reason": {"code": "no-room", "message": "1 GPU is free, 2 are needed"},
        "since": "2026-01-01T00:00:00.000Z",
    }
    fake.answers["GET", "/api/v1/queue"] = Answer(body={"entries": [entry]})
    assert run("pliant queue").out == snapshot("""\
POSITION  NAME  PROJECT  GPUS  WAITING  REASON
1         a1    team-a   2.00  9s       1 GPU is free, 2 are needed [no-room]
""")


def test_columns_are_two_apart_and_lines_have_no_tail():
    assert table(("A", "LONG"), [("xyz", ""), ("", "y")]) == "A    LONG\nxyz\n     y"
    assert table(("A", "B"), [], rule=True) == "A  B\n────"
    assert table(("A", "B"), [], headers=False) == ""


def test_group_titles_stand_above_their_first_column():
    text = grouped((("", ("A",)), ("CPU", ("USED", "FREE"))), [("node-1", "1", "2")])
    assert text == "        CPU\nA       USED  FREE\nnode-1  1     2"


@pytest.mark.parametrize(
    ("seconds", "age"),
    [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h"),
        (86399, "23h"),
        (86400, "1d"),
        (364 * 86400, "364d"),
        (365 * 86400, "1y"),
    ],
)
def test_ages_are_one_whole_unit(seconds, age):
    item = workload("a1", createdAt="1970-01-01T00:00:00.000Z")
    assert workload_tables.job_row(item, now=float(seconds))[2] == age


def test_running_of_requested_pods_may_be_a_range():
    elastic = workload("a1", runningPods=2, requestedPods={"number": 3, "min": 1, "max": 3})
    assert workload_tables.pods(elastic) == "2/1-3"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_yaml_reads_back_as_it_was(value):
    assert yaml.safe_load(as_yaml(value)) == value


def step(kind, **more):
    return {"kind": kind, "count": 0, "before": 0, "resource": "gpu", "where": "", "whom": [], **more}


@pytest.mark.parametrize(
    ("steps", "typed"),
    [
        (
            [step("quota", count=500, before=1000, where="default", whom=[{"kind": "project", "name": "a"}])],
            ["pliant project update a --quota 1.5"],
        ),
        (
            [
                step("limit", count=2000, where="default", whom=[{"kind": "department", "name": "lab"}]),
                step("machines", count=1000, where="default"),
            ],
            ["pliant department update lab --limit 2"],
        ),
        ([step("fair-share", count=1000, where="default", whom=[{"kind": "project", "name": ""}])], []),
        ([step("quota", count=1000, where="fast", whom=[{"kind": "project", "name": "a"}])], []),
        ([step("uncordon", where="sim-1")], ["pliant node uncordon sim-1"]),
        (
            [step("taint", where="sim-1", taints=["k=v:NoSchedule", "m:NoExecute"])],
            ["pliant node taint sim-1 k:NoSchedule- m:NoExecute-"],
        ),
        ([step("resume")], ["pliant resume a1 -p team-a"]),
        ([step("end", count=1000)], []),
    ],
)
def test_why_names_the_command_to_type(fake, run, steps, typed):
    fake.workloads = [pending("a1")]
    start = {"earliest": None, "latest": None, "basis": "", "unknown": "no running job has --max-runtime."}
    unblock = {
        "never": False,
        "remedies": [{"kind": steps[-1]["kind"], "text": "do it", "steps": steps}],
        "complete": True,
        "start": start,
    }
    fake.answers["GET", "/api/v1/workloads/id-a1/why"] = Answer(body={"unblock": unblock})
    lines = run("pliant why a1 -p team-a").out.splitlines()
    at = lines.index("  - do it") + 1
    assert [line.strip() for line in lines[at : at + len(typed)]] == typed
    assert lines[at + len(typed)] == "Estimated start: unknown; no running job has --max-runtime."
