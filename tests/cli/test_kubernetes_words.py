"""Commands known from kubectl: get pods, apply -f, priority classes."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake import Answer, Fake
from tests.cli.items import POD, workload

CLASSES = "/api/v1/priority-classes"
HIGH = """\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: high-priority
value: 1000000
globalDefault: false
"""
LOW = """\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: low-priority
value: 1000
globalDefault: false
"""

# -- get pods ---------------------------------------------------------------------------------------


def pod(name: str, status: str, **changed: Any) -> dict[str, Any]:
    return POD | {"name": name, "status": status, "completedAt": None} | changed


@pytest.fixture
def pods(fake: Fake) -> Fake:
    """Two jobs of ElasticDL, one of which has ended, and a training."""
    for name, phase, found in (
        (
            "low",
            "Running",
            [
                pod("elasticdl-master-low", "Running", attempt=2),
                pod("elasticdl-worker-low-0", "Terminating"),
                pod("elasticdl-worker-low-2", "Pending", attempt=1, nodeName=""),
            ],
        ),
        (
            "over",
            "Completed",
            [
                pod("elasticdl-master-over", "Succeeded"),
                pod("elasticdl-worker-over-0", "Failed"),
                pod("elasticdl-worker-over-1", "Stopped"),
            ],
        ),
    ):
        labels = {"app": "elasticdl", "elasticdl_job_name": name}
        item = workload(
            name, projectName="default", phase=phase, labels=labels, distributedFramework="ElasticDL"
        )
        fake.workloads.append(item)
        fake.answers["GET", f"/api/v1/workloads/id-{name}/pods"] = Answer(body={"next": None, "pods": found})
    fake.workloads.append(workload("train", projectName="default"))
    fake.answers["GET", "/api/v1/workloads/id-train/pods"] = Answer(
        body={"next": None, "pods": [pod("train-task-0", "Running", attempt=3)]}
    )
    return fake


def columns(out: str) -> list[list[str]]:
    """The first four columns of each line, without the age, which depends on the day."""
    return [line.split()[:4] for line in out.splitlines()]


def test_pods_of_a_job(run: Run, pods: Fake) -> None:
    done = run("pliant get pods -l elasticdl_job_name=low")
    assert columns(done.out) == [
        ["NAME", "READY", "STATUS", "RESTARTS"],
        ["elasticdl-master-low", "1/1", "Running", "0"],
        ["elasticdl-worker-low-0", "1/1", "Terminating", "0"],
        ["elasticdl-worker-low-2", "0/1", "Pending", "0"],
    ]
    assert done.out.splitlines()[0].split()[4] == "AGE"


def test_pods_of_all(run: Run, pods: Fake) -> None:
    found = columns(run("pliant get pod").out)[4:]
    assert found == [
        ["elasticdl-master-over", "0/1", "Completed", "0"],
        ["elasticdl-worker-over-0", "0/1", "Error", "0"],
        ["train-task-0", "1/1", "Running", "2"],
    ]


@pytest.mark.parametrize(
    ("selector", "masters"),
    [
        ("app=elasticdl", ["low", "over"]),
        ("app==elasticdl,elasticdl_job_name!=low", ["over"]),
        ("elasticdl_job_name", ["low", "over"]),
        ("app,!app", []),
        ("elasticdl_job_name=none", []),
    ],
)
def test_selectors(run: Run, pods: Fake, selector: str, masters: list[str]) -> None:
    done = run(f"pliant get pods -l '{selector}' -o name")
    assert [line for line in done.out.splitlines() if "master" in line] == [
        f"pod/elasticdl-master-{name}" for name in masters
    ]


def test_no_pods(run: Run, fake: Fake) -> None:
    done = run("pliant get pods -l elasticdl_job_name=none")
    assert (done.code, done.out, done.err) == (0, "", "No resources found in default namespace.\n")
    assert run("pliant get pods -n runai-team-a").err == "No resources found in runai-team-a namespace.\n"
    assert run("pliant get pods -n moon").code == 3


@pytest.mark.parametrize("line", ["get pods -l =x", "get pods -l 'a b'", "get a1 -l app=x"])
def test_wrong_selectors(run: Run, fake: Fake, line: str) -> None:
    assert run(f"pliant {line}").code == 2


# -- apply ------------------------------------------------------------------------------------------


@pytest.fixture
def applied(fake: Fake) -> Fake:
    fake.answers["PUT", CLASSES] = Answer(
        body={
            "applied": [
                {"name": "high-priority", "result": "created"},
                {"name": "low-priority", "result": "unchanged"},
            ]
        }
    )
    return fake


def write(folder: Path, text: str, name: str = "classes.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("apart", [True, False])
def test_the_seed_s_files(run: Run, applied: Fake, tmp_path: Path, apart: bool) -> None:
    if apart:
        files = [write(tmp_path, HIGH, "high-prio.yaml"), write(tmp_path, LOW, "low-prio.yaml")]
    else:
        files = [write(tmp_path, f"{HIGH}---\n{LOW}---\n")]
    done = run("pliant apply " + " ".join(f"-f {path}" for path in files))
    assert done.out.splitlines() == [
        "priorityclass.scheduling.k8s.io/high-priority created",
        "priorityclass.scheduling.k8s.io/low-priority unchanged",
    ]
    (body,) = applied.sent("PUT", CLASSES)
    assert body == {
        "priorityClasses": [
            {"name": "high-priority", "value": 1_000_000, "description": ""},
            {"name": "low-priority", "value": 1000, "description": ""},
        ]
    }


DEPLOYMENT = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"{HIGH}---\n{DEPLOYMENT}",
            "FILE: document 2 (line 8): kind Deployment cannot be applied here; only kind PriorityClass ",
        ),
        ("a: 1\n", "FILE: document 1 (line 1): it has no kind; only kind"),
        ("- 1\n", "FILE: document 1 (line 1): not an object"),
        ("", "FILE: no objects found."),
        ("---\n---\n", "FILE: no objects found."),
        ("kind: [\n", "FILE: line 2: invalid YAML: "),
        ("kind: !!python/object:os.system {}\n", "FILE: line 1: invalid YAML: "),
        (HIGH.replace("scheduling.k8s.io/v1", "v1"), "FILE: line 1: apiVersion is v1; expected scheduling"),
        (HIGH.replace("1000000", "much"), "FILE: line 5: value is 'much'; expected a whole number"),
        (HIGH.replace("1000000", "true"), "FILE: line 5: value is True; expected a whole number"),
        (HIGH.replace("value: 1000000\n", ""), "FILE: document 1 (line 1): value is None; expected"),
        (HIGH.replace("value:", "valeu:"), "FILE: line 5: there is no field 'valeu'; did you mean value?"),
        (HIGH.replace("false", "true"), "FILE: line 6: globalDefault is not supported"),
        (f"{HIGH}preemptionPolicy: Never\n", "FILE: line 7: preemptionPolicy: only PreemptLowerPriority"),
        (HIGH.replace("  name: high-priority", "  names: x"), "FILE: line 3: metadata.name is missing"),
        (f"{HIGH}value: 5\n", "FILE: document 1 (line 1): field value appears twice."),
    ],
)
def test_what_cannot_be_applied(run: Run, applied: Fake, tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, text)
    done = run(f"pliant apply -f {path}")
    assert done.code == 2
    assert done.err.startswith(f"Error: {said.replace('FILE', str(path))}"), done.err
    assert applied.requests == [], "all or nothing"


def test_files_that_cannot_be_read(run: Run, applied: Fake, tmp_path: Path) -> None:
    assert "No such file" in run(f"pliant apply -f {tmp_path}/none.yaml").err
    assert "Is a directory" in run(f"pliant apply -f {tmp_path}").err
    (tmp_path / "latin.yaml").write_bytes(b"\xff\xfe\xfa")
    assert "not UTF-8 text" in run(f"pliant apply -f {tmp_path}/latin.yaml").err


# -- priority classes -------------------------------------------------------------------------------


def test_priority_classes(run: Run, fake: Fake) -> None:
    row = {"name": "top", "value": 7, "description": "", "createdAt": "2026-01-01T00:00:00.000Z"}
    fake.answers["POST", CLASSES] = Answer(201, row)
    assert run("pliant priorityclass create top --value 7").out == (
        "Priority class top created with the value 7.\n"
    )
    assert fake.last.body == {"name": "top", "value": 7, "description": ""}
    fake.answers["GET", CLASSES] = Answer(body={"priorityClasses": [row]})
    fake.answers["GET", "/api/v1/workload-priorities"] = Answer(
        body={
            "priorities": [
                {"id": "low", "name": "low", "value": 40, "source": "system"},
                {"id": "top", "name": "top", "value": 7, "source": "user"},
            ]
        }
    )
    lines = [line.split()[:3] for line in run("pliant priorityclass list").out.splitlines()]
    assert lines[2:] == [["low", "40", "built"], ["top", "7", "yours"]]
    fake.answers["DELETE", f"{CLASSES}/top"] = Answer(204)
    assert run("pliant priorityclass delete top").out == "Priority class top deleted.\n"


@pytest.mark.parametrize("line", ["create top", "create top --value much", "create --value 5", "delete"])
def test_wrong_commands(run: Run, fake: Fake, line: str) -> None:
    assert run(f"pliant priorityclass {line}").code == 2
