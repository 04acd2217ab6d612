"""What each option of the two submits adds to the request, and what is printed."""

import json
import re
from typing import get_type_hints

import pytest

from pliant.cli.submit import options, v1, v2
from pliant.wire.submission import Spec
from tests.cli.fake import Answer, Chunks
from tests.cli.items import pending, workload

QUICKSTART = "runai.jfrog.io/demo/quickstart"


FIRST = [
    ("-g 2", {"compute": {"gpuDevicesRequest": 2}}),
    ("-g 1.0", {"compute": {"gpuDevicesRequest": 1}}),
    (
        "-g 0.25",
        {"compute": {"gpuRequestType": "portion", "gpuPortionRequest": 0.25, "gpuDevicesRequest": 1}},
    ),
    (
        "--gpu-memory 5Gi",
        {"compute": {"gpuRequestType": "memory", "gpuMemoryRequest": "5Gi", "gpuDevicesRequest": 1}},
    ),
    ("--cpu 500m --memory 4G", {"compute": {"cpuCoreRequest": 0.5, "cpuMemoryRequest": "4G"}}),
    ("--cpu 2", {"compute": {"cpuCoreRequest": 2}}),
    ("--interactive", {"backoffLimit": 0}),
    ("--interactive --backoff-limit 3", {"backoffLimit": 3}),
    (
        "--interactive --preemptible",
        {"backoffLimit": 0, "preemptibility": "preemptible", "priorityClass": "interactive-preemptible"},
    ),
    ("--backoffLimit 2", {"backoffLimit": 2}),
    ("--ttl-after-finish 2m", {"autoDeletionTimeAfterCompletionSeconds": 120}),
    ("--parallelism 3 --completions 12", {"parallelism": 3, "completions": 12}),
    ("--node-type dgx", {"nodeType": "dgx"}),
    ("--node-pools a,b", {"nodePools": ["a", "b"]}),
    ("--node-pools 'a b' --node-pools c", {"nodePools": ["a", "b", "c"]}),
    ("--priority high", {"priorityClass": "high"}),
    ("--working-dir /tmp", {"workingDir": "/tmp"}),
    ("--stdin --tty", {"stdin": True, "tty": True}),
    (
        "-e A=1 -e B=x=y -e C=",
        {
            "environmentVariables": [
                {"name": "A", "value": "1"},
                {"name": "B", "value": "x=y"},
                {"name": "C", "value": ""},
            ]
        },
    ),
    (
        "-l team=vision -a note=x",
        {"labels": [{"name": "team", "value": "vision"}], "annotations": [{"name": "note", "value": "x"}]},
    ),
    ("--image-pull-policy Always", {}),
    ("-- a 'b c'", {"args": "a 'b c'", "argsArgv": ["a", "b c"]}),
    ("--args a --args 'b c'", {"args": "a 'b c'", "argsArgv": ["a", "b c"]}),
    (
        "--command -- python -c 'x; y'",
        {"command": "python -c 'x; y'", "commandArgv": ["python", "-c", "x; y"]},
    ),
    ("--command -- run -- -g 9", {"command": "run -- -g 9", "commandArgv": ["run", "--", "-g", "9"]}),
    ("--command=true -- run", {"command": "run", "commandArgv": ["run"]}),
    (
        "--command 'python train.py' --args --epochs --args 3",
        {"command": "python train.py --epochs 3", "commandArgv": ["python", "train.py", "--epochs", "3"]},
    ),
    (
        "--command bash --args -c --args 'a; b'",
        {"command": "bash -c 'a; b'", "commandArgv": ["bash", "-c", "a; b"]},
    ),
    (
        "--command sh --command -c --command exit",
        {"command": "sh -c exit", "commandArgv": ["sh", "-c", "exit"]},
    ),
]


@pytest.mark.parametrize(("options", "expected"), FIRST, ids=[options for options, _ in FIRST])
def test_the_first_edition(options, expected, run, fake):
    # The project comes first: everything after a `--` belongs to the job.
    result = run(f"pliant -p team-a submit job1 -i ubuntu {options}")
    assert result.code == 0, result.err
    assert fake.last.body["spec"] == {"image": "ubuntu", **expected}


SECOND = [
    ("-g 2", {"compute": {"gpuDevicesRequest": 2}}),
    (
        "-g 2 --gpu-portion-request 0.5 --gpu-portion-limit 1",
        {
            "compute": {
                "gpuRequestType": "portion",
                "gpuPortionRequest": 0.5,
                "gpuPortionLimit": 1.0,
                "gpuDevicesRequest": 2,
            }
        },
    ),
    (
        "--gpu-request-type memory --gpu-memory-request 4G --gpu-memory-limit 12G",
        {
            "compute": {
                "gpuRequestType": "memory",
                "gpuMemoryRequest": "4G",
                "gpuMemoryLimit": "12G",
                "gpuDevicesRequest": 1,
            }
        },
    ),
    (
        "--cpu-core-request 0.1 --cpu-memory-request 100M",
        {"compute": {"cpuCoreRequest": 0.1, "cpuMemoryRequest": "100M"}},
    ),
    (
        "--priority very-high --preemptibility non-preemptible",
        {"priorityClass": "very-high", "preemptibility": "non-preemptible"},
    ),
    ("--environment-variable A=1", {"environmentVariables": [{"name": "A", "value": "1"}]}),
    ("--termination-grace-period 90s", {"terminationGracePeriodSeconds": 90}),
    ("--auto-deletion-time-after-completion 1h30m", {"autoDeletionTimeAfterCompletionSeconds": 5400}),
    ("--restart-policy OnFailure --backoff-limit 0", {"restartPolicy": "OnFailure", "backoffLimit": 0}),
    ("--runs 12 --parallelism 3", {"parallelism": 3, "completions": 12}),
    ("--completions 2", {"completions": 2}),
    ("-g 1 --elastic", {"elastic": True, "compute": {"gpuDevicesRequest": 1}}),
    ("-c -- sleep infinity", {"command": "sleep infinity", "commandArgv": ["sleep", "infinity"]}),
    ("--command -- sleep infinity", {"command": "sleep infinity", "commandArgv": ["sleep", "infinity"]}),
    ("-- --epochs 3", {"args": "--epochs 3", "argsArgv": ["--epochs", "3"]}),
]


@pytest.mark.parametrize(("options", "expected"), SECOND, ids=[options for options, _ in SECOND])
def test_the_second_edition(options, expected, run, fake):
    result = run(f"pliant -p team-a training submit t1 -i ubuntu {options}")
    assert result.code == 0, result.err
    assert fake.last.path == "/api/v1/workloads/trainings"
    assert fake.last.body["spec"] == {"image": "ubuntu", **expected}


def test_every_option_of_the_tables_sets_a_field_of_the_wire():
    tables = (options.COMMON, options.RUNS, v1.OPTIONS, v2.OPTIONS)
    set_by = [one.field for table in tables for one in table if isinstance(one, options.Option)]
    assert set(set_by) <= get_type_hints(Spec).keys()
    assert len(set_by) > 15


@pytest.mark.parametrize(
    "group", ["submit", "training submit", "training pytorch submit", "submit-mpi", "run"]
)
def test_each_submit_takes_the_common_options(group, run, fake):
    shown = run(f"pliant {group} --help").out
    assert [flag for one in options.COMMON for flag in one.flags if flag not in shown] == []


NAMES = [
    ('submit ""', {"name": ""}),
    ('training submit --name ""', {"name": ""}),
    ("submit", {"nameBase": "job", "nameStyle": "index"}),
    ("submit --job-name-prefix exp", {"nameBase": "exp", "nameStyle": "index"}),
    ("submit --name n1", {"name": "n1"}),
    ("submit n1", {"name": "n1"}),
    ("training submit", {}),
    ("training standard submit n1", {"name": "n1"}),
    ("workspace submit --name-prefix w", {"name": "w", "useGivenNameAsPrefix": True}),
    ("workload submit --type workspace n1", {"name": "n1"}),
]


@pytest.mark.parametrize(("words", "expected"), NAMES, ids=[words for words, _ in NAMES])
def test_names(words, expected, run, fake):
    assert run(f"pliant {words} -i ubuntu -p team-a").code == 0
    sent = fake.last.body
    assert {key: sent[key] for key in sent if key.startswith(("name", "use"))} == expected
    kind = "workspaces" if "workspace" in words else "trainings"
    assert fake.last.path == f"/api/v1/workloads/{kind}"


def test_what_is_printed(run, fake):
    assert run(f"runai submit -i {QUICKSTART} --gpu-memory 5G -p team-a").out == (
        "The job 'job-0' has been submitted successfully\n"
        "You can run `runai describe job job-0 -p team-a` to check its status\n"
    )
    assert run(f"runai training submit -i {QUICKSTART} -p team-a").out == (
        "The training 'training-0123456789ab' has been submitted successfully\n"
        "You can run `runai training describe training-0123456789ab -p team-a` to check its status\n"
    )
    assert run("pliant submit n1 -i ubuntu -p team-a -o name").out == "n1\n"
    assert json.loads(run("pliant submit n1 -i ubuntu -p team-a -o json").out)["workloadId"] == "id-n1"


def test_what_has_no_effect_says_so_in_one_line(run, fake):
    result = run("pliant submit n1 -i ubuntu -p team-a --large-shm")
    assert result.err == "Note: --large-shm has no effect: processes here share the machine's own /dev/shm.\n"
    old = run("pliant submit n1 -i ubuntu -p team-a --command sleep --args infinity")
    assert old.err == (
        "Note: `--command WORD --args WORD` is the old spelling of `--command -- sleep infinity`.\n"
    )


def test_attach_follows_the_output_once_it_runs(run, fake):
    fake.chunks["/api/v1/workloads/id-n1/logs"] = Chunks([b"one\n", b"two\n"])
    fake.workloads = [workload("n1", projectName="other")]
    result = run("pliant submit n2 -i ubuntu -p team-a")
    assert result.code == 0
    fake.answers["POST", "/api/v1/workloads/trainings"] = Answer(202, {"name": "n1", "workloadId": "id-n1"})
    result = run("pliant submit n1 -i ubuntu -p team-a --attach")
    assert result.out.endswith("status\none\ntwo\n")
    assert result.err == "Connecting to pod a1-main-0\n"
    assert (fake.sent("POST", "/api/v1/workloads/trainings")[-1]["spec"]["tty"]) is True


def test_attach_gives_up_with_its_own_exit_code(run, fake):
    fake.workloads = [pending("n1")]
    result = run("pliant attach n1 -p team-a --pod-running-timeout 1")
    assert result.code == 124
    assert result.err == (
        "Waiting for pod to start running...\nError: n1 did not start within 1s; it remains in the queue.\n"
    )


def test_attach_says_that_no_tty_has_no_effect(run, fake):
    fake.workloads = [pending("n1")]
    result = run("pliant attach n1 -p team-a --no-tty --pod-running-timeout 1")
    assert result.err.startswith("Note: --no-tty has no effect: attach uses no terminal without --tty.\n")


UNITS = [
    (
        "project create team-a --quota 2",
        "projects",
        {"name": "team-a", "resources": [{"nodePool": {"name": "default"}, "gpu": {"deserved": 2}}]},
    ),
    (
        "project create a --quota 0.5 --limit -1 --weight 3 --department ml "
        "--interactive-limit 1h --idle-limit 30s",
        "projects",
        {
            "name": "a",
            "departmentName": "ml",
            "resources": [
                {
                    "nodePool": {"name": "default"},
                    "gpu": {"deserved": 0.5, "limit": None, "overQuotaWeight": 3},
                }
            ],
            "schedulingRules": {
                "interactiveJobTimeLimitSeconds": 3600,
                "interactiveJobMaxIdleDurationSeconds": 30,
                "interactiveJobPreemptIdleDurationSeconds": 30,
                "trainingJobMaxIdleDurationSeconds": 30,
            },
        },
    ),
    (
        "project create a --resources nodepool=default,gpu-deserved=2,gpu-limit=4,priority=High "
        "--resources nodepool=h100,gpu-deserved=1,cpu-deserved=8000,memory-limit=1000",
        "projects",
        {
            "name": "a",
            "resources": [
                {"nodePool": {"name": "default"}, "gpu": {"deserved": 2, "limit": 4}, "priority": "High"},
                {
                    "nodePool": {"name": "h100"},
                    "gpu": {"deserved": 1},
                    "cpu": {"deserved": 8000},
                    "memory": {"limit": 1000, "units": "MB"},
                },
            ],
        },
    ),
    (
        "project create a --interactive-node-types x,y --training-node-types z --default-node-pools p,q",
        "projects",
        {
            "name": "a",
            "resources": [{"nodePool": {"name": "default"}, "gpu": {"deserved": 0}}],
            "nodeTypes": {"workspace": ["x", "y"], "training": ["z"]},
            "defaultNodePools": ["p", "q"],
        },
    ),
    (
        "department create ml --quota 6",
        "departments",
        {"name": "ml", "resources": [{"nodePool": {"name": "default"}, "gpu": {"deserved": 6}}]},
    ),
]


@pytest.mark.parametrize(("line", "units", "expected"), UNITS, ids=[line for line, _, _ in UNITS])
def test_projects_and_departments(line, units, expected, run, fake):
    result = run(f"pliant {line}")
    assert result.code == 0, result.err
    assert result.out.endswith(f" {expected['name']} created.\n")
    assert fake.sent("POST", f"/api/v1/org-unit/{units}") == [expected]


def test_an_update_names_only_what_changes(run, fake):
    run("pliant project update team-a --quota 3")
    run("pliant project update team-a --interactive-limit none")
    run("pliant department update default --limit 4")
    assert fake.sent("PATCH", "/api/v1/org-unit/projects/team-a") == [
        {"resources": [{"nodePool": {"name": "default"}, "gpu": {"deserved": 3}}]},
        {"schedulingRules": {"interactiveJobTimeLimitSeconds": None}},
    ]
    assert fake.sent("PATCH", "/api/v1/org-unit/departments/default") == [
        {"resources": [{"nodePool": {"name": "default"}, "gpu": {"limit": 4}}]}
    ]


def test_node_pools_and_nodes(run, fake):
    run("pliant nodepool create h100 --label gpu=h100 --min-runtime 2m --placement spread")
    assert fake.last.body == {
        "name": "h100",
        "labelKey": "gpu",
        "labelValue": "h100",
        "minRuntimeSeconds": 120,
        "placementStrategy": {"cpu": "spread", "gpu": "spread"},
    }
    assert run("pliant nodepool update default --min-runtime 2m").out == "Node pool default updated.\n"
    assert (fake.last.path, fake.last.body) == ("/api/v1/node-pools/1", {"minRuntimeSeconds": 120})
    assert run("pliant node cordon node-1").out == "Node node-1 cordoned.\n"
    assert fake.last.path == "/api/v1/nodes/node-1/cordon"
    run("pliant node uncordon node-1")
    assert fake.last.path == "/api/v1/nodes/node-1/uncordon"


def test_clusters_are_chosen_by_name_or_uuid(run, fake):
    assert run("pliant cluster set default").out == "Set current cluster to default\n"
    assert run("pliant config cluster 11111111-2222-3333-4444-555555555555").code == 0


def test_v2_delete_with_yes_and_by_uuid(run, fake):
    fake.workloads = [workload("t1")]
    assert run("pliant training delete t1 -y -p team-a").out == "Training t1 deleted successfully.\n"
    assert run("pliant workload delete -u id-t1 -y").out == "Workload id-t1 deleted successfully.\n"
    assert run("pliant delete --all -p team-a").out == "Job t1 deleted successfully.\n"


def test_v2_delete_asks_on_a_terminal(run, fake, monkeypatch):
    import io

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    fake.workloads = [workload("t1")]
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    refused = run("pliant training delete t1 -p team-a")
    assert refused.code == 1
    assert refused.err.startswith("Delete t1? [y/N]: ")
    assert refused.err.endswith("Error: Cancelled: nothing was changed.\n")
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert run("pliant training delete t1 -p team-a").code == 0
    assert [request.path for request in fake.requests if request.method == "DELETE"] == [
        "/api/v1/workloads/id-t1"
    ]


SUBMITS = (
    "submit",
    "run",
    "training submit",
    "workspace submit",
    "inference submit",
    "training pytorch submit",
    "training mpi submit",
    "submit-mpi",
    "submit-dist pytorch",
)


@pytest.mark.parametrize("words", SUBMITS)
def test_the_help_of_a_submit_begins_with_examples_and_what_everybody_needs(run, words):
    shown = run(f"pliant {words} --help").out
    titles = re.findall(r"^(\w.*):$", shown, re.MULTILINE)
    assert titles[:3] == ["Examples", "Basic", "Identity"]
    assert shown.count(f"  pliant {words} ") == 3
    basic = shown.partition("\nBasic:\n")[2].partition("\nIdentity:\n")[0]
    flags = re.findall(r"^  (?:-\w, )?(--[\w-]+)", basic, re.MULTILINE)
    vain = {"run": {"--attach"}, "inference submit": {"--attach", "--max-runtime"}}.get(words, set())
    assert len(flags) == 8 - len(vain) and flags[0] == "--project" and not vain & {*flags}
    rest = shown.partition("\nOther options:\n")[2]
    assert set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", rest, re.MULTILINE)) == {
        "--dry-run",
        "--help-all",
        "--help",
    }
    assert "--mps" not in shown and "Accepted" not in shown


@pytest.mark.parametrize("words", SUBMITS)
def test_options_without_effect_are_in_the_whole_help_only(run, words):
    short, long = run(f"pliant {words} --help").out, run(f"pliant {words} --help-all")
    assert long.code == 0 and long.out.startswith("Usage: pliant")
    vain = long.out.partition("\nAccepted without effect:\n")[2]
    for flag in ("--mps", "--large-shm", "--volume", "--image-pull-policy", "--cpu-limit"):
        assert flag in vain and flag not in short
    assert "--pvc" not in long.out, "it is refused"
    assert run(f"pliant {words} --help").out == short


def test_the_examples_of_the_help_are_accepted(run, fake):
    for words in ("submit", "training submit"):
        shown = run(f"pliant {words} --help").out
        for line in re.findall(rf"^  (pliant {words} .*)$", shown, re.MULTILINE):
            result = run(line.replace("~/project", "/"))
            assert result.code == 0, result.err
