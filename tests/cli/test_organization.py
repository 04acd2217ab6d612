"""Commands for quota, node pools and nodes: what they send and show."""
# ruff: noqa: E501 - tables are as wide as they are

import pytest
from inline_snapshot import snapshot

from tests.cli.fake import Answer
from tests.cli.items import EVENT, unit

SENT = [
    (
        "project create a --quota 1 --rank high --reclaim-min-runtime 2m --preempt-min-runtime 0",
        ("POST", "/api/v1/org-unit/projects"),
        {
            "name": "a",
            "resources": [
                {
                    "nodePool": {"name": "default"},
                    "gpu": {"deserved": 1},
                    "priority": "high",
                    "reclaimMinRuntimeSeconds": 120,
                    "preemptMinRuntimeSeconds": 0,
                }
            ],
        },
    ),
    (
        "project update team-a --weight none --reclaim-min-runtime none",
        ("PATCH", "/api/v1/org-unit/projects/team-a"),
        {
            "resources": [
                {
                    "nodePool": {"name": "default"},
                    "gpu": {"overQuotaWeight": None},
                    "reclaimMinRuntimeSeconds": None,
                }
            ]
        },
    ),
    (
        "project update team-a --resources nodepool=a100,gpu-weight=2,preempt-min-runtime=1h",
        ("PATCH", "/api/v1/org-unit/projects/team-a"),
        {
            "resources": [
                {
                    "nodePool": {"name": "a100"},
                    "gpu": {"overQuotaWeight": 2},
                    "preemptMinRuntimeSeconds": 3600,
                }
            ]
        },
    ),
    (
        "department create vision --parent research",
        ("POST", "/api/v1/org-unit/departments"),
        {"name": "vision", "departmentName": "research"},
    ),
    (
        "department update vision --parent none",
        ("PATCH", "/api/v1/org-unit/departments/vision"),
        {"departmentName": ""},
    ),
    (
        "nodepool update default --gpu-placement spread --cpu-placement binpack",
        ("PATCH", "/api/v1/node-pools/1"),
        {"placementStrategy": {"gpu": "spread", "cpu": "binpack"}},
    ),
    (
        "nodepool update default --placement spread --cpu-placement binpack",
        ("PATCH", "/api/v1/node-pools/1"),
        {"placementStrategy": {"gpu": "spread", "cpu": "binpack"}},
    ),
    (
        "nodepool update default --device-placement spread --topology room",
        ("PATCH", "/api/v1/node-pools/1"),
        {"placementStrategy": {"device": "spread"}, "networkTopologyName": "room"},
    ),
    (
        "nodepool update default --topology none",
        ("PATCH", "/api/v1/node-pools/1"),
        {"networkTopologyName": ""},
    ),
    (
        "topology create room --levels zone,rack",
        ("POST", "/api/v1/network-topologies"),
        {"name": "room", "levels": ["zone", "rack"]},
    ),
    (
        "topology update room --levels zone --levels rack",
        ("PUT", "/api/v1/network-topologies/room"),
        {"levels": ["zone", "rack"]},
    ),
    ("topology delete room", ("DELETE", "/api/v1/network-topologies/room"), b""),
    (
        "node label node-1 gpu=h100 rack= zone-",
        ("PATCH", "/api/v1/nodes/node-1"),
        {"labels": {"gpu": "h100", "rack": "", "zone": None}},
    ),
    (
        "node taint node-1 maintenance=soon:NoSchedule drained:NoExecute",
        ("PATCH", "/api/v1/nodes/node-1"),
        {
            "taints": [
                {"key": "maintenance", "value": "soon", "effect": "NoSchedule"},
                {"key": "drained", "value": "", "effect": "NoExecute"},
            ]
        },
    ),
    (
        "node taint node-1 maintenance- other:NoExecute-",
        ("PATCH", "/api/v1/nodes/node-1"),
        {
            "taints": [
                {"key": "maintenance", "effect": "PreferNoSchedule", "exclude": True},
                {"key": "other", "effect": "NoExecute", "exclude": True},
            ]
        },
    ),
    (
        "cluster settings stale-grace=5m victims=default",
        ("PATCH", "/api/v1/scheduling-settings"),
        {"stale-grace": "5m", "victims": None},
    ),
]
MADE = {
    ("POST", "/api/v1/network-topologies"): Answer(201, {"name": "room"}),
    ("PUT", "/api/v1/network-topologies/room"): Answer(200, {"name": "room"}),
    ("DELETE", "/api/v1/network-topologies/room"): Answer(204),
    ("PATCH", "/api/v1/nodes/node-1"): Answer(200, {"name": "node-1"}),
    ("GET", "/api/v1/nodes/node-1"): Answer(
        200, {"taints": [{"key": "maintenance", "value": "", "effect": "PreferNoSchedule"}]}
    ),
    ("PATCH", "/api/v1/scheduling-settings"): Answer(200, {"settings": [], "faults": []}),
}


def test_a_taint_that_is_not_there(run, fake):
    fake.answers |= MADE
    result = run("pliant node taint node-1 maintenanze-")
    assert (result.code, result.err.splitlines()[0]) == (3, "Error: Node node-1 has no taint maintenanze.")
    assert fake.sent("PATCH", "/api/v1/nodes/node-1") == []


@pytest.mark.parametrize(("line", "route", "body"), SENT, ids=[line for line, _, _ in SENT])
def test_words_and_what_is_sent(line, route, body, run, fake):
    fake.answers |= MADE
    result = run(f"pliant {line}")
    assert result.code == 0, result.err
    assert fake.sent(*route) == [body]


WRONG = [
    ("project create a --reclaim-min-runtime soon", "--reclaim-min-runtime soon: not a time"),
    ("project create a --rank high --resources nodepool=default,gpu-deserved=1", "both set pool"),
    (
        "project update a --resources nodepool=x,cpu-limit=8G",
        "cpu-limit 8G: not a number such as 8000, in mill",
    ),
    (
        "project update a --resources nodepool=x,memory-limit=lots",
        "memory-limit lots: not an amount of memory",
    ),
    (
        "project update a --resources nodepool=x,cpu-deserved=8,cpu-limit=4",
        "cpu-limit 4 is below cpu-deserved 8.",
    ),
    ("project update a --resources nodepool=x,nodepool=y", "nodepool is given twice"),
    ("project update a --resources nodepool=x,preempt-min-runtime=-1", "preempt-min-runtime -1: not a time"),
    ("nodepool update default --gpu-placement heap", "Invalid value for '--gpu-placement'"),
    ("topology create room", "Missing option '--levels'"),
    ("node label node-1 gpu", "'gpu': expected KEY=VALUE, or KEY- to remove the label."),
    ("node label node-1", "Missing argument"),
    ("node taint node-1 gpu", "'gpu': expected KEY[=VALUE]:EFFECT"),
    ("node taint node-1 gpu:Shun", "EFFECT is NoSchedule, PreferNoSchedule, NoExecute."),
    ("node taint node-1 gpu=x:NoSchedule-", "'gpu=x:NoSchedule-': expected KEY[=VALUE]:EFFECT"),
    ("cluster settings stale-grace", "settings stale-grace: expected NAME=VALUE."),
    ("cluster settings ageing=1h ageing=2h", "A setting is given twice."),
]


@pytest.mark.parametrize(("line", "said"), WRONG, ids=[line for line, _ in WRONG])
def test_what_is_wrong_is_said_before_anything_is_sent(line, said, run, fake):
    result = run(f"pliant {line}")
    assert (result.code, said in result.err) == (2, True), result.err
    assert not [request for request in fake.requests if request.method != "GET"]


def test_describe_a_project(run, fake):
    fake.projects = [unit("team-a", 2.0, 3.0, 1.0, description="the A team")]
    pool = fake.projects[0]["resources"][0]
    pool |= {"reclaimMinRuntimeSeconds": 120.0, "preemptMinRuntimeSeconds": None}
    [use] = fake.projects[0]["status"]["nodePoolQuotaStatuses"]
    use |= {"fairShareGpus": 2.5, "pastUseGpuHours": 12.345, "pastUseShare": 0.402}
    lines = run("pliant project describe team-a").out.splitlines()
    assert "\n".join(line.rstrip() for line in lines) == snapshot("""\
NAME: team-a
DEPARTMENT: default
DESCRIPTION: the A team
GPU QUOTA: 2.00
ALLOCATED GPUS: 3.00
OVER QUOTA: 1.00
FAIR SHARE: 2.00
DEFAULT NODE POOLS: -
INTERACTIVE NODE TYPES: -
TRAINING NODE TYPES: -
INTERACTIVE LIMIT: -
TRAINING LIMIT: -

Node pools:
POOL     QUOTA  LIMIT  WEIGHT  RANK        ALLOCATED  NON-PREEMPTIBLE  REQUESTED  FAIR SHARE  PAST USE        RECLAIM MIN RUNTIME  PREEMPT MIN RUNTIME
default  2.00   -      -       Medium Low  3.00       3.00             3.00       2.50        12.35h (40.2%)  2m0s                 -\
""")


def test_cpu_and_memory_of_a_project(run, fake):
    fake.projects = [unit("team-a", 2.0, 3.0, 1.0)]
    words = "cpu-deserved=8000m,cpu-limit=16000,memory-deserved=500,memory-limit=64Gi"
    assert run(f"pliant project update team-a --resources nodepool=default,{words}").code == 0
    [entry] = fake.last.body["resources"]
    assert entry["cpu"] == {"deserved": 8000, "limit": 16000}
    assert entry["memory"] == {"deserved": 500, "limit": 68719.476736, "units": "MB"}
    fake.projects[0]["resources"][0] |= {"cpu": entry["cpu"], "memory": entry["memory"]}
    [use] = fake.projects[0]["status"]["nodePoolQuotaStatuses"]
    use["allocated"] |= {"cpu": 2500.0, "memory": 104.8576}
    assert (
        run("pliant project describe team-a")
        .out.rstrip()
        .endswith("""\
CPU and memory:
POOL     CPU QUOTA  CPU LIMIT  CPUS  MEMORY QUOTA  MEMORY LIMIT  MEMORY
default  8          16         2.5   500M          64Gi          100Mi""")
    )


def test_describe_what_is_not_there(run, fake):
    result = run("pliant department describe ml")
    assert (result.code, result.err) == (3, "Error: Department ml does not exist.\nThere are: default.\n")


def test_topologies_settings_and_events(run, fake):
    fake.answers |= {
        ("GET", "/api/v1/network-topologies"): Answer(
            body={
                "networkTopologies": [
                    {"name": "room", "levels": ["zone", "rack"], "nodes": 4, "nodePools": []}
                ]
            }
        ),
        ("GET", "/api/v1/scheduling-settings"): Answer(
            body={
                "settings": [
                    {"name": "victims", "value": "youngest", "default": "least", "about": "who loses first"}
                ],
                "faults": ["node x is over-full: 2 of 1 millicores are claimed"],
            }
        ),
        ("GET", "/api/v1/events"): Answer(
            body={"events": [EVENT | {"who": "ann", "message": "ann set it."}]}
        ),
    }
    shown = "".join(run(f"pliant {line}").out for line in ("topology list", "cluster settings"))
    events = run("pliant cluster events --subject node/x").out.splitlines()
    assert fake.last.query[0] == ("subject", "node/x")
    assert [line.split()[-3:] for line in events] == [["TYPE", "AGE", "MESSAGE"], ["ann", "set", "it."]]
    assert shown == snapshot("""\
Topology  Levels      Nodes  Node Pools
───────────────────────────────────────
room      zone, rack  4      -
Setting  Value     Default  Meaning
───────────────────────────────────────────
victims  youngest  least    who loses first

Set aside, the rest is scheduled as ever: node x is over-full: 2 of 1 millicores are claimed
""")


PROMISED = {"nodePoolName": "default", "departmentName": None, "promisedGpus": 6.0, "gpus": 4.0}
IN_A_DEPARTMENT = {"nodePoolName": "fast", "departmentName": "lab", "promisedGpus": 1.5, "gpus": 1.0}


def _marked(name, quota, *marks):
    made = unit(name, quota)
    return {**made, "status": {**made["status"], "overpromised": list(marks)}}


def test_quotas_beyond_the_machines_are_marked(run, fake):
    found = [_marked("a", 3.0, PROMISED), _marked("b", 3.0, PROMISED, IN_A_DEPARTMENT), unit("c", 0.0)]
    for what in ("projects", "departments"):
        fake.answers["GET", f"/api/v1/org-unit/{what}"] = Answer(200, {what: found, "totalItems": 3})
        shown = run(f"pliant {what[:-1]} list").out
        assert shown.count("3.00*") == 2 and "0.00*" not in shown
        assert shown.endswith("""
* The quotas of node pool default add up to 6 GPUs; its nodes have 4 GPUs.
* The quotas in department lab add up to 1.5 GPUs in node pool fast; the department's quota is 1 GPU.
""")
        assert "add up" not in run(f"pliant {what[:-1]} list --no-headers").out
    assert "OVERPROMISED: The quotas of node pool default" in run("pliant project describe a").out
    fake.answers["PATCH", "/api/v1/org-unit/projects/a"] = Answer(200, found[0])
    changed = run("pliant project update a --quota 3")
    assert changed.out == "Project a updated.\n"
    assert changed.err == "Note: The quotas of node pool default add up to 6 GPUs; its nodes have 4 GPUs.\n"
