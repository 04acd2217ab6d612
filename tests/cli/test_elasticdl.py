"""`elasticdl`: flags of all its clients, what they submit, and what they refuse."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pliant.cli.elasticdl.flags import FLAGS, REFUSED, WITHOUT_EFFECT
from pliant.cli.elasticdl.program import main
from tests.cli.conftest import Result
from tests.cli.fake import Answer, Chunks, Fake, problem
from tests.cli.items import POD, workload

Elasticdl = Callable[[str], Result]
PATH = "/api/v1/workloads/distributed"

SEED = """--job_name=low-prio-job --model_file={model} --train_data_dir={data}
 --master_pod_priority=high-priority --worker_pod_priority=low-priority --num_epoch=1 --minibatch_size=10
 --record_per_task=100 --num_worker=2 --master_cpu_request=1000m --master_cpu_limit=1000m
 --master_memory_request=1024Mi --master_memory_limit=1024Mi --worker_cpu_request=3000m
 --worker_cpu_limit=3000m --worker_memory_request=4096Mi --worker_memory_limit=4096Mi --grads_to_wait=2
 --codec_type=bytes --repository=gcr.io --image_base=gcr.io/elasticdl/elasticdl:dev"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "zoo" / "mnist" / "mnist_functional_api.py"
    path.parent.mkdir(parents=True)
    path.write_text("model = None\n")
    return path


@pytest.fixture
def elasticdl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Elasticdl:
    def run(line: str) -> Result:
        words = shlex.split(line)
        monkeypatch.setattr(sys, "argv", ["/usr/bin/elasticdl", *words])
        capsys.readouterr()
        code = main(words)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


def sent(fake: Fake) -> dict[str, Any]:
    (body,) = fake.sent("POST", PATH)
    return body


def flags(part: dict[str, Any]) -> dict[str, str]:
    """Values of a task's flags, by flag."""
    return dict(word.removeprefix("--").split("=", 1) for word in part["argsArgv"][1:])


def test_the_command_of_the_seed(elasticdl: Elasticdl, fake: Fake, model: Path, tmp_path: Path) -> None:
    done = elasticdl(SEED.format(model=model, data=tmp_path))
    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        "Job low-prio-job has been submitted to project default.",
        "Its pods: pliant get pods -l elasticdl_job_name=low-prio-job",
    ]
    assert done.err.splitlines() == [
        "Note: no effect here: --image_base, --repository (no image is built or pushed); --master_cpu_limit, "
        "--master_memory_limit, --worker_cpu_limit, --worker_memory_limit (nothing limits a task on this "
        "machine)."
    ]
    body = sent(fake)
    spec, master = body["spec"], body["masterSpec"]
    assert (body["name"], body["projectName"], spec["distributedFramework"]) == (
        "low-prio-job",
        "default",
        "ElasticDL",
    )
    assert (spec["numWorkers"], spec["priorityClass"]) == (2, "low-priority")
    assert spec["compute"] == {"cpuCoreRequest": 3, "cpuMemoryRequest": "4096Mi"}
    assert (master["priorityClass"], master["compute"]) == (
        "high-priority",
        {"cpuCoreRequest": 1, "cpuMemoryRequest": "1024Mi"},
    )
    assert {"name": "elasticdl_job_name", "value": "low-prio-job"} in spec["labels"]
    assert (spec["argsArgv"][0], master["argsArgv"][0]) == ("worker", "master")
    assert flags(spec) == flags(master)
    assert flags(spec) == {
        "job_name": "low-prio-job",
        "mode": "train",
        "model_file": str(model),
        "train_data_dir": str(tmp_path),
        "num_epochs": "1",
        "minibatch_size": "10",
        "records_per_task": "100",
        "num_workers": "2",
        "grads_to_wait": "2",
        "codec_type": "bytes",
    }


def test_the_later_spellings(elasticdl: Elasticdl, fake: Fake, model: Path) -> None:
    line = (
        f"train --job_name job --model_zoo={model.parents[1]} --model_def=mnist.mnist_functional_api.custom"
        " --training_data=digits:600 --validation_data=digits:test --num_epochs=2 --num_workers 3"
        " --minibatch_size=10 --num_minibatches_per_task=8 --evaluation_steps=100 --checkpoint_steps=50"
        " --checkpoint_dir=ckpt --output=out --master_resource_request=cpu=0.5,memory=1Gi"
        ' --worker_resource_request="cpu=2, memory=4096Mi,gpu=1" --envs=A=1,B=x=y --loss=my_loss'
    )
    done = elasticdl(line)
    assert (done.code, done.err) == (0, "")
    spec, master = sent(fake)["spec"], sent(fake)["masterSpec"]
    assert spec["compute"] == {"cpuCoreRequest": 2, "cpuMemoryRequest": "4096Mi", "gpuDevicesRequest": 1}
    assert master["compute"] == {"cpuCoreRequest": 0.5, "cpuMemoryRequest": "1Gi"}
    assert spec["environmentVariables"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "x=y"}]
    found = flags(spec)
    assert (found["model_file"], found["model"], found["loss"]) == (str(model), "custom", "my_loss")
    assert (found["num_workers"], found["records_per_task"]) == ("3", "80")
    assert (found["train_data_dir"], found["validation_data_dir"]) == ("digits:600", "digits:test")
    assert (found["checkpoint_dir"], found["output"]) == (
        str(Path("ckpt").absolute()),
        str(Path("out").absolute()),
    )


def test_a_model_def_without_a_symbol(elasticdl: Elasticdl, fake: Fake, model: Path) -> None:
    line = f"--job_name=j --model_zoo={model.parents[1]} --model_def=mnist.mnist_functional_api"
    assert elasticdl(f"{line} --train_data_dir=digits:9").code == 0
    found = flags(sent(fake)["spec"])
    assert found["model_file"] == str(model)
    assert "model" not in found


def test_what_is_asked_for_where_nothing_is_said(elasticdl: Elasticdl, fake: Fake, model: Path) -> None:
    assert elasticdl(f"--job_name=j --model_file={model} --train_data_dir=digits:9").code == 0
    body = sent(fake)
    assert body["spec"]["numWorkers"] == 1
    assert body["spec"]["compute"] == {"cpuCoreRequest": 1, "cpuMemoryRequest": "4096Mi"}
    assert body["masterSpec"]["compute"] == {"cpuCoreRequest": 0.1, "cpuMemoryRequest": "1024Mi"}
    assert "priorityClass" not in body["spec"] and "priorityClass" not in body["masterSpec"]


@pytest.mark.parametrize(
    ("verb", "more"),
    [
        ("evaluate", "--validation_data_dir=digits:9 --checkpoint_dir=trained"),
        ("evaluate", "--validation_data_dir=digits:9 --checkpoint_dir_for_init=trained"),
        ("predict", "--prediction_data_dir=digits:9 --output=rows --checkpoint_dir=trained"),
    ],
)
def test_other_verbs(elasticdl: Elasticdl, fake: Fake, model: Path, verb: str, more: str) -> None:
    done = elasticdl(f"{verb} --job_name=j --model_file={model} {more}")
    assert (done.code, done.err) == (0, "")
    found = flags(sent(fake)["spec"])
    assert (found["mode"], found["checkpoint_dir"]) == (verb, str(Path("trained").absolute()))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--job_name=j --model_params=units=9", "--model_params is not supported: write the values into"),
        (
            "--job_name=j --checkpoint_dir_for_init=old",
            "--checkpoint_dir_for_init is not supported: training",
        ),
        ("--job_name=j --num_worker=0", "--num_workers 0: a whole number, 1 or more."),
        ("--job_name=j --num_worker=-1", "--num_workers -1: a whole number, 1 or more."),
        ("--job_name=j --grads_to_wait=0", "--grads_to_wait 0: a whole number, 1 or more."),
        ("--job_name=j --num_epoch=x", "--num_epochs x: a whole number, 1 or more."),
        ("--job_name=j --evaluation_steps=-5", "--evaluation_steps -5: a whole number, 0 or more."),
        ("--job_name=j --worker_cpu_request='3 cores'", "--worker_cpu_request 3 cores: not a number such as"),
        ("--job_name=j --worker_cpu_request=0", "--worker_cpu_request 0: more than 0 cores."),
        (
            "--job_name=j --master_memory_request=lots",
            "--master_memory_request lots: not an amount of memory",
        ),
        ("--job_name=j --worker_resource_request=cpu", "--worker_resource_request cpu: write cpu=1"),
        ("--job_name=j --worker_resource_request=disk=1", "--worker_resource_request disk=1: write cpu=1"),
        ("--job_name=j --worker_resource_request=cpu=x", "--worker_resource_request cpu x: not a number"),
        (
            "--job_name=j --worker_resource_request=cpu=1 --worker_cpu_request=1",
            "--worker_cpu_request and --worker_resource_request both set cpu; use one of them.",
        ),
        (
            "--job_name=j --worker_pod_priority=0.5",
            "--worker_pod_priority 0.5: all workers have the same priority",
        ),
        ("--job_name=j --codec_type=json", "--codec_type json: one of bytes, tf_example."),
        ("", "--job_name must be set."),
        ("--job_name=j --train_data_dir=digits:0", "--train_data_dir digits:0: write digits:N"),
        ("--job_name=j --train_data_dir=/no/such", "--train_data_dir /no/such: there is no /no/such."),
        ("evaluate --job_name=j", "--validation_data_dir must be set"),
        ("evaluate --job_name=j --validation_data_dir=digits:9", "--checkpoint_dir must be set"),
        ("predict --job_name=j --prediction_data_dir=digits:9 --checkpoint_dir=c", "--output must be set"),
        ("--job_name=j --num_minibatches_per_task=3", "--num_minibatches_per_task needs --minibatch_size."),
        ("--job_name=j --envs=A", "--envs A: expected NAME=VALUE."),
        (
            "--job_name=j --num_wroker=2",
            "No such option '--num_wroker'. Did you mean '--num_worker",
        ),
        ("tarin --job_name=j", "Unknown command 'tarin': use one of train, evaluate, predict."),
    ],
)
def test_what_cannot_be(elasticdl: Elasticdl, fake: Fake, model: Path, line: str, said: str) -> None:
    verb, _, rest = line.partition(" ") if not line.startswith("-") and line else ("train", "", line)
    data = "" if "data_dir" in line or verb != "train" else " --train_data_dir=digits:9"
    done = elasticdl(f"{verb} --model_file={model} {rest}{data}")
    assert done.code == 2
    assert done.err.startswith(f"Error: {said}")
    assert fake.requests == []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("", "--model_file must be set (or --model_zoo and --model_def)."),
        ("--model_file=no.py", "--model_file: file "),
        ("--model_file=/", "--model_file: / is not a file; specify one Python file."),
        ("--model_zoo=/ --model_def=a.b", "--model_def: file /a/b.py does not exist."),
        ("--model_file=a.py --model_def=a", "--model_file and --model_def exclude each other."),
    ],
)
def test_model_files_that_are_none(elasticdl: Elasticdl, fake: Fake, flags: str, said: str) -> None:
    done = elasticdl(f"--job_name=j --train_data_dir=digits:9 {flags}")
    assert done.code == 2
    assert done.err.startswith(f"Error: {said}")
    assert fake.requests == []


def test_every_spelling_stands_once() -> None:
    names = [name for flag in FLAGS for name in flag.names]
    names += [name for group in (*WITHOUT_EFFECT.values(), REFUSED) for name in group]
    assert len(names) == len(set(names))


def test_a_job_of_that_name_is_there(elasticdl: Elasticdl, fake: Fake, model: Path) -> None:
    fake.answers["POST", PATH] = problem(
        409, "A workload named 'j' already exists in project default.", "name-exists", "Delete it first."
    )
    done = elasticdl(f"--job_name=j --model_file={model} --train_data_dir=digits:9")
    assert done.code == 5
    assert done.err.splitlines() == [
        "Error: A workload named 'j' already exists in project default.",
        "Choose another --job_name, or delete the existing job first: pliant delete j -p default",
    ]


def test_nothing_is_submitted_in_a_rehearsal(elasticdl: Elasticdl, fake: Fake, model: Path) -> None:
    done = elasticdl(f"--job_name=j --model_file={model} --train_data_dir=digits:9 --dry-run")
    assert (done.code, done.out) == (0, "Dry run: j would be pending. 2 GPUs are in use\n")


# -- --wait -----------------------------------------------------------------------------------------


def change(item: dict[str, Any], kind: str = "workload") -> bytes:
    import json

    return f"event: {kind}\ndata: {json.dumps(item)}\n\n".encode()


def job(**changed: Any) -> dict[str, Any]:
    return workload("j", projectName="default", distributedFramework="ElasticDL", **changed)


def wait(elasticdl: Elasticdl, fake: Fake, model: Path, *items: bytes) -> Result:
    fake.workloads = [job(phase="Pending", status="Pending", runningPods=0)]
    fake.answers["POST", PATH] = Answer(202, {"name": "j", "workloadId": "id-j", "notices": [], "spec": {}})
    fake.chunks["/api/v1/watch"] = Chunks(items)
    return elasticdl(f"--job_name=j --model_file={model} --train_data_dir=digits:9 --wait")


def test_wait_ends_with_the_job(elasticdl: Elasticdl, fake: Fake, model: Path) -> None:
    done = wait(
        elasticdl,
        fake,
        model,
        change(workload("other")),
        change(job(runningPods=2)),
        change(job(phase="Completed", status="Succeeded", runningPods=0)),
    )
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[2:] == ["j: Pending", "j: Running, 2 pods", "j: Completed after 1h2m5s"]


def test_wait_shows_the_first_traceback(elasticdl: Elasticdl, fake: Fake, model: Path) -> None:
    pods = [
        POD | {"name": "later", "status": "Failed", "exitCode": 1, "completedAt": "2026-01-01T00:00:09.000Z"},
        POD | {"name": "first", "status": "Failed", "exitCode": 1, "completedAt": "2026-01-01T00:00:05.000Z"},
        POD
        | {"name": "well", "status": "Succeeded", "exitCode": 0, "completedAt": "2026-01-01T00:00:01.000Z"},
    ]
    fake.answers["GET", "/api/v1/workloads/id-j/pods"] = Answer(body={"next": None, "pods": pods})
    log = (
        b'step 1\nTraceback (most recent call last):\n  File "m.py", line 3, in loss\nValueError: no\nmore\n'
    )
    fake.chunks["/api/v1/workloads/id-j/logs"] = Chunks([log])
    ended = job(phase="Failed", status="Failed", phaseMessage="worker-0 ended with exit code 1.")
    done = wait(elasticdl, fake, model, change(ended))
    assert done.code == 1
    assert done.err.splitlines() == [
        "Error: Job j has failed: worker-0 ended with exit code 1.",
        "Traceback (most recent call last):",
        '  File "m.py", line 3, in loss',
        "ValueError: no",
    ]
    asked = [dict(request.query)["pod"] for request in fake.requests if request.path.endswith("/logs")]
    assert asked == ["first", "later"]


def test_wait_for_what_is_deleted(elasticdl: Elasticdl, fake: Fake, model: Path) -> None:
    done = wait(elasticdl, fake, model, change(job(), "deleted"))
    assert (done.code, done.err) == (1, "Error: Job j was deleted before it ended.\n")
